//! What the handlers of one host share.

use crate::audit::Audit;
use crate::config::HostConfig;
use crate::guest_logs::GuestLogs;
use crate::library::Library;
use crate::machine::Machine;
use crate::metrics::{Exposition, Metrics};
use crate::roots::RootHealth;
use crate::scheduling::Scheduling;
use crate::tenants::{Tenants, TokenThrottle};
use std::sync::Arc;

/// See the module.
pub(crate) struct Service {
    pub(crate) config: HostConfig,
    pub(crate) tenants: Tenants,
    /// Who tried bad tokens.
    pub(crate) throttle: TokenThrottle,
    pub(crate) library: Library,
    pub(crate) machine: Machine,
    pub(crate) scheduling: Scheduling,
    pub(crate) operations: Operations,
}

/// What whoever runs the host sees of it.
pub(crate) struct Operations {
    pub(crate) metrics: Arc<Metrics>,
    /// Which data roots answer.
    pub(crate) roots: Arc<RootHealth>,
    /// What `/metrics` shows of these.
    pub(crate) exposition: Exposition,
    /// What guests logged.
    pub(crate) lines: Arc<GuestLogs>,
    /// Who did what.
    pub(crate) audit: Audit,
}
