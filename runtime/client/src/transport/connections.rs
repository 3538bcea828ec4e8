use super::RequestBody;
use crate::{ClientError, Deadlines, Trust};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::sync::atomic::{AtomicUsize, Ordering};

/// HTTP/2 windows. All open streams are read at once, so the connection's window must not be what holds them back: at
/// 1 Gbit/s and 50 ms, 6 MB are on the way.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Connections a host is asked over at most. Where one is held back by its own window or a shaper of its own, four are enough to
/// tell and to gain from; beyond that a job takes from its neighbours on the link more than its share.
pub(crate) const CONNECTIONS: usize = 4;

type Connector = HttpsConnector<HttpConnector>;

/// The HTTP/2 connections to one host, and whose turn it is.
pub(super) struct Connections {
    /// Each keeps one connection, opened when it is first used.
    clients: [Client<Connector, RequestBody>; CONNECTIONS],
    /// How many of them extractions go over in turn.
    used: AtomicUsize,
    turn: AtomicUsize,
}

impl Connections {
    /// Connections that are not open yet, of which one is used.
    pub(super) fn new(encrypted: bool, trust: &Trust, deadlines: Deadlines) -> Result<Self, ClientError> {
        let connector = trust.connector(encrypted, deadlines.connect)?;
        let client = |_| {
            Client::builder(TokioExecutor::new())
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                .http2_only(true)
                .http2_initial_stream_window_size(STREAM_WINDOW)
                .http2_initial_connection_window_size(CONNECTION_WINDOW)
                .http2_keep_alive_interval(deadlines.ping)
                .http2_keep_alive_timeout(deadlines.ping)
                .build(connector.clone())
        };
        Ok(Self {
            clients: std::array::from_fn(client),
            used: AtomicUsize::new(1),
            turn: AtomicUsize::new(0),
        })
    }

    /// The connection of that number; the first where there is none.
    pub(super) fn get(&self, number: usize) -> &Client<Connector, RequestBody> {
        let [first, ..] = &self.clients;
        self.clients.get(number).unwrap_or(first)
    }

    /// Takes turns over so many connections from now on.
    pub(super) fn use_first(&self, count: usize) {
        self.used.store(count.clamp(1, CONNECTIONS), Ordering::Relaxed);
    }

    /// The number of the connection whose turn it is.
    pub(super) fn next(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed) % self.used.load(Ordering::Relaxed)
    }
}
