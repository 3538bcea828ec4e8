//! What counters are told apart by. All label sets are closed, but for routes and tenants, of which a host has so many.

use frostline_wire::Split;
use prometheus_client::encoding::EncodeLabelSet;

/// One route and the class of its answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    /// The route's pattern, never the path as sent.
    pub(crate) route: String,
    /// `2xx` to `5xx`.
    pub(crate) status: &'static str,
}

/// How extractions ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ExtractionLabels {
    pub(super) split: &'static str,
    pub(super) outcome: &'static str,
}

/// Samples that became rows, and those that did not.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SampleLabels {
    pub(super) split: &'static str,
    pub(super) failed: bool,
}

/// What kind of split; cuts have too many names for a label.
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

/// How an admitted extraction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Outcome {
    Done,
    Refused,
    Failed,
    Deadline,
    /// The client left, or took nothing for too long.
    ClientGone,
    HostStopped,
    /// The token, the tenant or the guest is not good any more.
    Dismissed,
}

/// How stores fail.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct FaultLabels {
    pub(super) fault: &'static str,
}

/// How the store of a data root fails.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RootLabels {
    pub(super) root: String,
    pub(super) fault: &'static str,
}

/// One tenant.
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
