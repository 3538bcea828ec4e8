use super::Source;
use super::buffer::BatchBuffer;
use super::request::PendingSamples;
use super::straggler::StragglerDetector;
use super::window::HostWindows;
use crate::Hosts;
use crate::hosts::Member;
use crate::retry::{Attempts, RetryPolicy};
use frostline_images::DecodePool;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Fetcher state shared by all batches.
pub(super) struct FetcherState {
    pub(super) windows: HostWindows,
    pub(super) stragglers: StragglerDetector,
    pub(super) policy: RetryPolicy,
    pub(super) decoders: DecodePool,
    /// Body bytes of incomplete answers.
    pub(super) interrupted: AtomicU64,
}

/// Batch in flight.
pub(super) struct Exchange {
    pub(super) memory: Arc<FetcherState>,
    pub(super) hosts: Hosts,
    pub(super) source: Arc<Source>,
    pub(super) buffer: Arc<BatchBuffer>,
}

/// Samples to request from a host in a single extraction.
pub(super) struct HostRequest {
    pub(super) host: Arc<Member>,
    pub(super) pending: PendingSamples,
    pub(super) attempts: Attempts,
    /// Hosts that failed to deliver all of these samples since the last wait.
    pub(super) tried: BTreeSet<usize>,
    /// Number of times that these samples were moved away from a silent host.
    pub(super) given_up: u32,
}
