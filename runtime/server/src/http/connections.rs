//! The listener and its connections: a bounded number, each with deadlines, HTTP/1.1 or HTTP/2 as the client begins.

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

/// Streams of one HTTP/2 connection at once: a trainer opens a handful; the rest is for listings beside them.
const STREAMS: u32 = 128;

/// Bytes that a connection of HTTP/1.1 reads ahead, of a head or of a body nobody has asked for yet.
const READ_AHEAD: usize = 64 << 10;

/// Bytes of HTTP/2 answers a stream may buffer: enough to keep a link busy while the next frame is fetched.
const SEND_BUFFER: usize = 1 << 20;

/// Connections of admins at once, here or from afar.
pub(crate) const ADMINS: usize = 16;

/// How often an HTTP/2 connection is asked for a sign of life, and how long it has for it.
const PING: Duration = Duration::from_secs(20);

/// How long to wait after the system gave no connection, for want of file handles most of the time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a stranger's connection may take to close once the host stops: nothing of what strangers are told is worth waiting for.
const STRANGER_CLOSE: Duration = Duration::from_secs(1);

/// Where a host listens, and what for.
pub(crate) struct Port {
    pub(crate) listener: TcpListener,
    pub(crate) router: Router,
    pub(crate) tls: Option<TlsAcceptor>,
    /// Connections at once.
    pub(crate) connections: usize,
}

/// Accepts until `stop`; connections then finish what they have begun. They end at once with the service's `end`.
pub(crate) async fn serve(
    port: Port,
    service: Arc<Service>,
    stop: CancellationToken,
    connections: TaskTracker,
) {
    let gate = Arc::new(Gate {
        permits: Permits::new(port.connections),
        router: port.router,
        tls: port.tls,
        service,
        stop: stop.clone(),
    });
    // Connections of proxies that have not said yet whose they are.
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
            let (gate, tracker) = (Arc::clone(&gate), connections.clone());
            connections.spawn(async move {
                gate.admit_from_proxy(stream, address, &tracker).await;
                drop(waiting);
            });
        }
    }
}

/// What connections of one port come through.
struct Gate {
    permits: Arc<Permits>,
    router: Router,
    tls: Option<TlsAcceptor>,
    service: Arc<Service>,
    stop: CancellationToken,
}

impl Gate {
    /// Lets in who has a permit.
    fn admit(&self, stream: TcpStream, address: IpAddr, connections: &TaskTracker) {
        let Some(permit) = self.permits.acquire(address) else {
            self.service.operations.metrics.connections_refused.inc();
            tracing::debug!(%address, "connection refused: its network is at its connection limit");
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

    /// Lets in whom a trusted proxy speaks for.
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

/// Accepts admins until `stop`: few, and on this machine.
pub(crate) async fn serve_admin(
    listener: UnixListener,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
    connections: TaskTracker,
) {
    let permits = Arc::new(Semaphore::new(ADMINS));
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
        let (router, stop) = (router.clone().layer(Extension(admin)), stop.clone());
        connections.spawn(async move {
            let traffic = Traffic::new();
            let seen = Arc::clone(&traffic);
            let handler = service_fn(move |request: http::Request<Incoming>| {
                let (open, answer) = (seen.open(), router.clone().oneshot(request));
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

/// Whether this process started the other: lanes and compilers run strangers' bytes, and have nothing to ask of an admin.
fn is_own_child(process: i32) -> bool {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Pid::from_raw(process).is_some_and(|process| waitid(WaitId::Pid(process), ended).is_ok())
}

/// Ends when a client lets its turn go by for so long.
async fn idle_timeout(traffic: &Traffic, limit: Duration) {
    loop {
        let now = Instant::now();
        let due = match traffic.waits() {
            WaitsFor::Host => now + limit / 4,
            WaitsFor::Idle(since) | WaitsFor::Untaken(since) if since + limit <= now => return,
            WaitsFor::Idle(since) | WaitsFor::Untaken(since) => since + limit,
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

/// One connection, for as long as it lasts.
struct Connection {
    peer: Peer,
    router: Router,
    service: Arc<Service>,
    stop: CancellationToken,
}

impl Connection {
    /// Serves a connection, encrypted where there is a certificate; who does not shake hands in time is gone.
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

    /// Answers requests until the client leaves or lets its turn go by for too long, the permit is another's, or the host stops.
    async fn answer(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let traffic = Traffic::new();
        let (seen, router) = (
            Arc::clone(&traffic),
            self.router.clone().layer(Extension(self.peer.clone())),
        );
        let handler = service_fn(move |request: http::Request<Incoming>| {
            let (open, answer) = (seen.open(), router.clone().oneshot(request));
            async move { Ok::<_, Infallible>(answer.await?.map(|body| open.answer(body))) }
        });
        let protocol = protocol(&self.service.config.limits);
        let serving = protocol.serve_connection(TokioIo::new(stream), handler);
        tokio::pin!(serving);
        let limits = &self.service.config.limits;
        // Whose turn it is, and whose connection, changes while this waits.
        let pause = limits.header_time.min(limits.stall) / 4;
        let mut closing = Closing::default();
        loop {
            let (waits, now) = (traffic.waits(), Instant::now());
            let due = self.idle_deadline(waits, &closing);
            if due.is_some_and(|due| due <= now) {
                if closing.since.is_some() || !matches!(waits, WaitsFor::Idle(_)) {
                    tracing::debug!(?waits, "connection closed: idle timeout");
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

    /// When the connection ends unless somebody moves; `None` while the client waits for this host.
    fn idle_deadline(&self, waits: WaitsFor, closing: &Closing) -> Option<Instant> {
        let since = match waits {
            WaitsFor::Host => return None,
            WaitsFor::Idle(since) => closing.since.map_or(since, |closing| closing.max(since)),
            WaitsFor::Untaken(since) => since,
        };
        Some(since + self.idle_limit(closing))
    }

    /// How long a client may let its turn go by.
    fn idle_limit(&self, closing: &Closing) -> Duration {
        let limits = &self.service.config.limits;
        match self.peer.permit.has_tenant() {
            true => limits.stall,
            false if closing.stopping => STRANGER_CLOSE.min(limits.header_time),
            false => limits.header_time,
        }
    }
}

/// Whether a connection was asked to close.
#[derive(Default)]
struct Closing {
    since: Option<Instant>,
    /// Because the host stops.
    stopping: bool,
}

/// What waits in a connection's window for a request to be let in is in no ledger, but kept free for all of them; a stream has half of it, so
/// that one that waits does not stop another.
fn protocol(limits: &Limits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_buf_size(READ_AHEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(limits.window / 2)
        .initial_connection_window_size(limits.window)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    builder
}
