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

/// HTTP/2 windows. All open streams are read at once, so the connection's window must not be what holds them back: at
/// 1 Gbit/s and 50 ms, 6 MB are on the way.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// The largest frame that is taken, which is what hosts send at once. Each costs both sides two system calls and a turn of every layer above: with
/// the usual 16 KiB that took a twentieth of two cores where f32 rows are larger than their photos.
const FRAME: u32 = 256 << 10;

/// Connections a host is asked over at most. Where one is held back by its own window or a shaper of its own, four are enough to
/// tell and to gain from; beyond that a job takes from its neighbors on the link more than its share.
pub(crate) const CONNECTIONS: usize = 4;

/// Opens connections, encrypted or not.
pub type Connector = HttpsConnector<HttpConnector>;

/// The HTTP/2 connections to one host.
pub(super) enum Connections {
    /// Over the network, and whose turn it is.
    Network {
        /// Each keeps one connection, opened when it is first used.
        clients: Box<[Client<Connector, Body>; CONNECTIONS]>,
        /// How many of them extractions go over in turn.
        used: AtomicUsize,
        turn: AtomicUsize,
    },
    /// Over a Unix socket, one for each call.
    Socket(PathBuf),
}

impl Connections {
    /// Connections over the network that are not open yet, of which one is used.
    pub(super) fn new(connector: &Connector, deadlines: Deadlines) -> Self {
        let client = |_| {
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
        };
        Self::Network {
            clients: Box::new(std::array::from_fn(client)),
            used: AtomicUsize::new(1),
            turn: AtomicUsize::new(0),
        }
    }

    /// Sends a request over the connection of that number, the first where there is none.
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

    /// Takes turns over so many connections from now on.
    pub(super) fn use_first(&self, count: usize) {
        if let Self::Network { used, .. } = self {
            used.store(count.clamp(1, CONNECTIONS), Ordering::Relaxed);
        }
    }

    /// The number of the connection whose turn it is.
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
