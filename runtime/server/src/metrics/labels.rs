//! Label sets of counters. All labels have a fixed set of values except routes, tenants and data roots, whose
//! number is limited by the host.

use frostline_wire::Split;
use prometheus_client::encoding::EncodeLabelSet;

/// Route and status class of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    /// Pattern of the route. The path as sent could have any number of values.
    pub(crate) route: String,
    /// `2xx` to `5xx`.
    pub(crate) status: &'static str,
}

/// Labels of a completed extraction.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ExtractionLabels {
    pub(super) split: &'static str,
    pub(super) outcome: &'static str,
}

/// Labels of answered samples.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SampleLabels {
    pub(super) split: &'static str,
    pub(super) failed: bool,
}

/// Kind of split. A label for every cut would create too many series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum SplitKind {
    None,
    Input,
    Cut,
}

impl From<&Split> for SplitKind {
    fn from(split: &Split) -> Self {
        match split {
            Split::None => Self::None,
            Split::Input => Self::Input,
            Split::Cut(_) => Self::Cut,
        }
    }
}

/// Result of an admitted extraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Outcome {
    Done,
    Refused,
    /// The host failed.
    Failed,
    /// The guest failed, or exceeded a limit of the tenant.
    GuestFailed,
    Deadline,
    /// The client disconnected, or did not read the answer in time.
    ClientGone,
    HostStopped,
    /// Access was revoked, the guest was disabled, or the operator cancelled the job.
    Dismissed,
}

/// Port that received a token, by the setting of its address: `listen` or `admin_listen`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PortLabels {
    pub(crate) port: &'static str,
}

/// Folder of the host: `local` or `state`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct FolderLabels {
    pub(crate) folder: &'static str,
}

/// Labels of a store failure.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct FaultLabels {
    pub(super) fault: &'static str,
}

/// Labels of a store failure with the data root.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RootLabels {
    pub(super) root: String,
    pub(super) fault: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct TenantLabels {
    tenant: String,
}

impl TenantLabels {
    pub(super) fn new(tenant: &str) -> Self {
        Self {
            tenant: tenant.to_owned(),
        }
    }
}
