use super::Source;
use super::buffer::BatchBuffer;
use super::patience::Patience;
use super::request::Pending;
use super::window::Windows;
use crate::Hosts;
use crate::hosts::Member;
use crate::retry::{Attempts, RetryPolicy};
use frostline_images::DecodePool;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What is remembered from one batch to the next, and shared by those on their way.
pub(super) struct Memory {
    pub(super) windows: Windows,
    pub(super) patience: Patience,
    pub(super) policy: RetryPolicy,
    pub(super) decoders: DecodePool,
    /// Bytes of answers that did not end as they should.
    pub(super) interrupted: AtomicU64,
}

impl Memory {
    pub(super) fn new(open_requests: usize, policy: RetryPolicy, decoders: DecodePool) -> Self {
        Self {
            windows: Windows::new(open_requests),
            patience: Patience::new(policy.patience),
            policy,
            decoders,
            interrupted: AtomicU64::new(0),
        }
    }
}

/// One batch on its way.
pub(super) struct Exchange {
    pub(super) memory: Arc<Memory>,
    pub(super) hosts: Hosts,
    pub(super) source: Arc<Source>,
    pub(super) buffer: Arc<BatchBuffer>,
}

/// Samples that are asked of one host together.
pub(super) struct Ask {
    pub(super) host: Arc<Member>,
    pub(super) pending: Pending,
    pub(super) attempts: Attempts,
    /// Hosts that failed to bring all of them, since the last wait.
    pub(super) tried: BTreeSet<usize>,
    /// How often they were given up because nothing came.
    pub(super) given_up: u32,
}
