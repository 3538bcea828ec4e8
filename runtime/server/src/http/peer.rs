use super::permits::ConnectionPermit;
use std::net::IpAddr;
use std::sync::Arc;

/// Client of a request.
#[derive(Clone)]
pub(super) struct Peer {
    pub(super) address: IpAddr,
    /// Connection permit.
    pub(super) permit: Arc<ConnectionPermit>,
}
