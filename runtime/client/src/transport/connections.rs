use super::call::Body;
use super::peer::Peer;
use crate::{ClientError, Deadlines};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::UnixStream;

/// HTTP/2 windows in bytes. All open streams are read concurrently, so the connection window must not limit
/// throughput. At 1 Gbit/s and 50 ms, 6 MB are in flight.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Maximum frame size in bytes, equal to the size that hosts send at once. Each frame costs both sides two
/// system calls and a pass through every layer. The usual 16 KiB used 5 % of two cores if `f32` rows are
/// larger than the original photos.
const FRAME: u32 = 256 << 10;

/// Maximum number of connections per host. If a link limits each connection (a small window, a traffic
/// shaper), four connections are enough to detect this and to benefit from it. More connections would be
/// unfair to other users on the link.
pub(crate) const CONNECTIONS: usize = 4;

/// Connector for HTTP with or without TLS.
pub type Connector = HttpsConnector<HttpConnector>;

/// HTTP/2 connections to one host.
pub(super) enum Connections {
    /// Connections over the network, used in turn.
    Network {
        /// Each client keeps a connection that opens on first use.
        clients: Box<[Client<Connector, Body>; CONNECTIONS]>,
        /// Number of connections in use by extractions.
        used: AtomicUsize,
        turn: AtomicUsize,
    },
    /// Unix socket. Each call opens a new connection.
    Socket(PathBuf),
}

impl Connections {
    /// Creates unopened network connections. Only the first connection is used until
    /// [`Connections::use_first`] is called.
    pub(super) fn new(connector: &Connector, deadlines: Deadlines) -> Self {
        Self::Network {
            clients: Box::new(std::array::from_fn(|_| {
                Client::builder(TokioExecutor::new())
                    .timer(TokioTimer::new())
                    .pool_timer(TokioTimer::new())
                    .http2_only(true)
                    .http2_initial_stream_window_size(STREAM_WINDOW)
                    .http2_initial_connection_window_size(CONNECTION_WINDOW)
                    .http2_max_frame_size(FRAME)
                    .http2_keep_alive_interval(deadlines.ping)
                    .http2_keep_alive_timeout(deadlines.ping)
                    .build(connector.clone())
            })),
            used: AtomicUsize::new(1),
            turn: AtomicUsize::new(0),
        }
    }

    /// Sends a request over the connection `number`, or the first connection if the number is out of range.
    pub(super) async fn send(
        &self,
        number: usize,
        request: Request<Body>,
        peer: &Peer,
    ) -> Result<Response<Incoming>, ClientError> {
        match self {
            Self::Network { clients, .. } => {
                let [first, ..] = &**clients;
                let answer = clients.get(number).unwrap_or(first).request(request).await;
                answer.map_err(|error| match error.is_connect() {
                    true => peer.unreachable(&error),
                    false => peer.lost(&error),
                })
            }
            Self::Socket(socket) => over_socket(socket, request, peer).await,
        }
    }

    /// Sets the number of connections to use in turn.
    pub(super) fn use_first(&self, count: usize) {
        if let Self::Network { used, .. } = self {
            used.store(count.clamp(1, CONNECTIONS), Ordering::Relaxed);
        }
    }

    /// Selects the next connection in turn and returns the number.
    pub(super) fn next(&self) -> usize {
        match self {
            Self::Network { used, turn, .. } => {
                turn.fetch_add(1, Ordering::Relaxed) % used.load(Ordering::Relaxed)
            }
            Self::Socket(_) => 0,
        }
    }
}

async fn over_socket(
    socket: &Path,
    request: Request<Body>,
    peer: &Peer,
) -> Result<Response<Incoming>, ClientError> {
    let stream = UnixStream::connect(socket).await;
    let stream = stream.map_err(|error| peer.unreachable(&error))?;
    let opened = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = opened.map_err(|error| peer.lost(&error))?;
    tokio::spawn(connection);
    let answer = sender.send_request(request).await;
    answer.map_err(|error| peer.lost(&error))
}
