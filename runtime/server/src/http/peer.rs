use super::permits::Permit;
use std::net::IpAddr;
use std::sync::Arc;

/// Where a request came from.
#[derive(Clone)]
pub(super) struct Peer {
    pub(super) address: IpAddr,
    /// The permit of its connection.
    pub(super) permit: Arc<Permit>,
}
