//! Listeners and connections. The number of connections is limited, and every state has a timeout. Clients
//! can choose HTTP/1.1 or HTTP/2.

use super::admin::Admin;
use super::peer::Peer;
use super::permits::Permits;
use super::proxy::client;
use super::traffic::{Traffic, WaitsFor};
use crate::config::Limits;
use crate::service::Service;
use axum::{Extension, Router};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

/// Maximum number of concurrent streams on an HTTP/2 connection. A trainer opens a handful, and the rest is
/// available to listings.
const MAX_STREAMS: u32 = 128;

/// Maximum read buffer of an HTTP/1.1 connection in bytes. It holds headers, and body data until a handler
/// reads it.
const READ_AHEAD: usize = 64 << 10;

/// Send buffer of an HTTP/2 stream in bytes. It keeps a link busy until the next frame is ready.
const SEND_BUFFER: usize = 1 << 20;

/// Maximum number of concurrent admin connections per listener.
pub(crate) const MAX_ADMIN_CONNECTIONS: usize = 16;

/// Interval between pings on HTTP/2 connections, and the timeout for an answer.
const PING: Duration = Duration::from_secs(20);

/// Pause after a failed accept. The usual reason is that no file descriptors are free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Maximum time for a connection without a token to close when the host stops. Answers to such clients are
/// not worth a longer delay.
const STRANGER_CLOSE: Duration = Duration::from_secs(1);

/// Listener with the routes and TLS configuration to serve on it.
pub(crate) struct Port {
    pub(crate) listener: TcpListener,
    pub(crate) router: Router,
    pub(crate) tls: Option<TlsAcceptor>,
    /// Maximum number of concurrent connections.
    pub(crate) connections: usize,
}

/// Accepts connections until `stop` is cancelled. Connections then finish open requests, but close
/// immediately when the `end` token of the service is cancelled.
pub(crate) async fn serve(
    port: Port,
    service: Arc<Service>,
    stop: CancellationToken,
    connections: TaskTracker,
) {
    let refused = service.operations.metrics.connections_refused.clone();
    let gate = Arc::new(Gate {
        permits: Permits::new(port.connections, refused.clone()),
        router: port.router,
        tls: port.tls,
        service,
        stop: stop.clone(),
    });
    // Connections from proxies that have not sent a PROXY protocol header yet.
    let unnamed = Arc::new(Semaphore::new(port.connections));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&port.listener) => accepted,
            () = stop.cancelled() => return,
        };
        let Some((stream, address)) = accepted else {
            continue;
        };
        if !gate.service.config.proxies.contains(address) {
            gate.admit(stream, address, &connections);
        } else if let Ok(waiting) = Arc::clone(&unnamed).try_acquire_owned() {
            let gate = Arc::clone(&gate);
            let tracker = connections.clone();
            connections.spawn(async move {
                gate.admit_from_proxy(stream, address, &tracker).await;
                drop(waiting);
            });
        } else {
            refused.inc();
        }
    }
}

/// Shared state for all connections on a port.
struct Gate {
    permits: Arc<Permits>,
    router: Router,
    tls: Option<TlsAcceptor>,
    service: Arc<Service>,
    stop: CancellationToken,
}

impl Gate {
    /// Serves a connection if a permit is available, and closes it otherwise.
    fn admit(&self, stream: TcpStream, address: IpAddr, connections: &TaskTracker) {
        let Some(permit) = self.permits.acquire(address) else {
            tracing::debug!(%address, "refused the connection: too many connections from this network");
            return;
        };
        let connection = Connection {
            peer: Peer {
                address,
                permit: Arc::new(permit),
            },
            router: self.router.clone(),
            service: Arc::clone(&self.service),
            stop: self.stop.clone(),
        };
        connections.spawn(connection.accept(stream, self.tls.clone()));
    }

    /// Reads the PROXY protocol header of a trusted proxy. The connection is then admitted with the client
    /// address in the header.
    async fn admit_from_proxy(&self, mut stream: TcpStream, proxy: IpAddr, connections: &TaskTracker) {
        let limit = self.service.config.limits.header_time;
        let source = tokio::select! {
            source = client(&mut stream, limit) => source,
            () = self.stop.cancelled() => return,
        };
        match source {
            Ok(client) => self.admit(stream, client.unwrap_or(proxy), connections),
            Err(error) => tracing::debug!(%proxy, %error, "proxy connection closed"),
        }
    }
}

/// Accepts connections on the admin socket until `stop` is cancelled.
pub(crate) async fn serve_admin(
    listener: UnixListener,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
    connections: TaskTracker,
) {
    let permits = Arc::new(Semaphore::new(MAX_ADMIN_CONNECTIONS));
    loop {
        let accept = async {
            let permit = Arc::clone(&permits).acquire_owned().await.ok()?;
            Some((listener.accept().await, permit))
        };
        let accepted = tokio::select! {
            accepted = accept => accepted,
            () = stop.cancelled() => return,
        };
        let Some((Ok((stream, _)), permit)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(peer) = stream.peer_cred() else { continue };
        if let Some(process) = peer.pid().filter(|process| is_own_child(*process)) {
            tracing::error!(
                process,
                "refused a child process of this host at the admin socket: a lane or compiler may be compromised"
            );
            continue;
        }
        let admin = Admin::User(peer.uid());
        let router = router.clone().layer(Extension(admin));
        let stop = stop.clone();
        connections.spawn(async move {
            let traffic = Traffic::new();
            let seen = Arc::clone(&traffic);
            let handler = service_fn(move |request: http::Request<Incoming>| {
                let open = seen.open();
                let answer = router.clone().oneshot(request);
                async move { Ok::<_, Infallible>(answer.await?.map(|body| open.answer(body))) }
            });
            let protocol = protocol(&limits);
            let serving = protocol.serve_connection(TokioIo::new(stream), handler);
            tokio::select! {
                outcome = serving => {
                    if let Err(error) = outcome {
                        tracing::debug!(%error, "admin connection ended early");
                    }
                }
                () = idle_timeout(&traffic, limits.stall) => tracing::debug!("admin connection closed: idle timeout"),
                () = stop.cancelled() => {}
            }
            drop(permit);
        });
    }
}

/// Returns true if `process` is a child of this process. Lanes and compilers process untrusted data and never
/// need the admin interface.
fn is_own_child(process: i32) -> bool {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Pid::from_raw(process).is_some_and(|process| waitid(WaitId::Pid(process), ended).is_ok())
}

/// Returns when the client has been idle for longer than `limit`, or is later than that with an answer.
async fn idle_timeout(traffic: &Traffic, limit: Duration) {
    loop {
        let now = Instant::now();
        let due = match traffic.waits() {
            WaitsFor::Host => now + limit / 4,
            WaitsFor::Idle(since) | WaitsFor::Reader(since) if since + limit <= now => return,
            WaitsFor::Idle(since) | WaitsFor::Reader(since) => since + limit,
        };
        sleep_until(due).await;
    }
}

async fn accept(listener: &TcpListener) -> Option<(TcpStream, IpAddr)> {
    match listener.accept().await {
        Ok((stream, from)) => Some((stream, from.ip())),
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// An open connection.
struct Connection {
    peer: Peer,
    router: Router,
    service: Arc<Service>,
    stop: CancellationToken,
}

impl Connection {
    /// Performs the TLS handshake, if TLS is configured, and serves the connection. A client that exceeds the
    /// handshake timeout is disconnected.
    async fn accept(self, stream: TcpStream, tls: Option<TlsAcceptor>) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "connection closed immediately");
            return;
        }
        let Some(tls) = tls else {
            return self.serve(stream).await;
        };
        let handshake = timeout(self.service.config.limits.header_time, tls.accept(stream));
        let outcome = tokio::select! {
            outcome = handshake => outcome,
            () = self.stop.cancelled() => return,
            () = self.peer.permit.revoked() => return,
        };
        match outcome {
            Ok(Ok(stream)) => self.serve(stream).await,
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!("TLS handshake timed out"),
        }
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let metrics = &self.service.operations.metrics;
        metrics.connections.inc();
        self.answer(stream).await;
        metrics.connections.dec();
    }

    /// Answers requests until the client disconnects or exceeds a timeout, the permit is revoked, or the host
    /// stops.
    async fn answer(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let traffic = Traffic::new();
        let seen = Arc::clone(&traffic);
        let router = self.router.clone().layer(Extension(self.peer.clone()));
        let handler = service_fn(move |request: http::Request<Incoming>| {
            let open = seen.open();
            let answer = router.clone().oneshot(request);
            async move { Ok::<_, Infallible>(answer.await?.map(|body| open.answer(body))) }
        });
        let protocol = protocol(&self.service.config.limits);
        let serving = protocol.serve_connection(TokioIo::new(stream), handler);
        tokio::pin!(serving);
        let limits = &self.service.config.limits;
        // The deadline and the owner of the permit can change during the wait.
        let pause = limits.header_time.min(limits.stall) / 4;
        let mut closing = Closing::default();
        loop {
            let waits = traffic.waits();
            let now = Instant::now();
            let due = self.idle_deadline(waits, &closing);
            if due.is_some_and(|due| due <= now) {
                if closing.since.is_some() || !matches!(waits, WaitsFor::Idle(_)) {
                    tracing::debug!(?waits, "connection closed: idle timeout");
                    if matches!(waits, WaitsFor::Reader(_)) {
                        self.service.operations.metrics.slow_readers.inc();
                    }
                    return;
                }
                closing.since = Some(now);
                serving.as_mut().graceful_shutdown();
            }
            tokio::select! {
                outcome = serving.as_mut() => {
                    if let Err(error) = outcome {
                        tracing::debug!(error = %error, "connection ended early");
                    }
                    return;
                }
                () = self.stop.cancelled(), if !closing.stopping => {
                    closing = Closing { stopping: true, since: Some(Instant::now()) };
                    serving.as_mut().graceful_shutdown();
                }
                () = sleep_until(due.map_or(now + pause, |due| due.min(now + pause))) => {}
                () = self.peer.permit.revoked() => return,
                () = self.service.scheduling.end.cancelled() => return,
            }
        }
    }

    /// Returns when the connection is closed without further activity. Returns `None` while the client waits
    /// for this host.
    fn idle_deadline(&self, waits: WaitsFor, closing: &Closing) -> Option<Instant> {
        let since = match waits {
            WaitsFor::Host => return None,
            WaitsFor::Idle(since) => closing.since.map_or(since, |closing| closing.max(since)),
            WaitsFor::Reader(since) => since,
        };
        Some(since + self.idle_limit(closing))
    }

    /// Returns the timeout for an idle client, and the longest delay of a client that reads an answer.
    fn idle_limit(&self, closing: &Closing) -> Duration {
        let limits = &self.service.config.limits;
        match self.peer.permit.has_tenant() {
            true => limits.stall,
            false if closing.stopping => STRANGER_CLOSE.min(limits.header_time),
            false => limits.header_time,
        }
    }
}

/// Progress of a graceful shutdown of a connection.
#[derive(Default)]
struct Closing {
    since: Option<Instant>,
    /// The host is stopping.
    stopping: bool,
}

/// Creates the protocol settings. An HTTP/1.1 connection answers a single request and is closed, because a
/// lenient proxy in front of the host may disagree with the HTTP library about where the first request ends,
/// and the rest would then be answered as another client's request. Trainers use HTTP/2.
///
/// The bytes that a window can hold are not in the memory ledger, but the
/// budget leaves space for all connections. A stream has half of the connection's window, because a stalled
/// stream must not block the others.
fn protocol(limits: &Limits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .header_read_timeout(limits.header_time)
        .max_buf_size(READ_AHEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(limits.window / 2)
        .initial_connection_window_size(limits.window)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    builder
}
