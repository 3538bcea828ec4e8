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

/// Label names with values of a fixed set.
pub(super) type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Label with the name of a tenant.
pub(super) type TenantLabel = [(&'static str, String); 1];

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

/// Labels of a store failure with the data root.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RootLabels {
    pub(super) root: String,
    pub(super) fault: &'static str,
}
