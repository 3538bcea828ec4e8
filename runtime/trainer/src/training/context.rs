use crate::{Events, Job};
use frostline_client::Hosts;
use tokio_util::sync::CancellationToken;

/// Job, hosts, events and cancellation.
#[derive(Clone, Copy)]
pub(crate) struct JobContext<'a> {
    pub(crate) job: &'a Job,
    pub(crate) hosts: &'a Hosts,
    pub(crate) events: &'a Events,
    /// Requests a stop. A step that has started finishes first; waiting for a batch and validation end
    /// immediately.
    pub(crate) cancel: &'a CancellationToken,
}
