use crate::HostClient;
use std::sync::Arc;

/// Host description without job state.
pub(super) struct HostDescription {
    pub(super) client: HostClient,
    /// Name that the host reports, if known.
    pub(super) name: Option<Arc<str>>,
    /// True if the host was found by a DNS name.
    pub(super) from_dns: bool,
    /// True if the host may be used without a check.
    pub(super) up: bool,
}

impl HostDescription {
    pub(super) fn given(client: HostClient) -> Self {
        Self {
            client,
            name: None,
            from_dns: false,
            up: true,
        }
    }
}
