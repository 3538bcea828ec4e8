//! The listener and its connections: a bounded number, each with deadlines, HTTP/1.1 or HTTP/2 as the client begins.

use super::addresses::Addresses;
use super::admin::Admin;
use crate::service::Service;
use axum::{Extension, Router};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

/// Streams of one HTTP/2 connection at once: a trainer opens a handful; the rest is for listings beside them.
const STREAMS: u32 = 128;

/// Receive windows of HTTP/2, in bytes, for uploads: 1 GiB over a link of 100 ms still runs at 80 Mbit/s with 1 MiB.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// Bytes of HTTP/2 answers a stream may buffer: enough to keep a link busy while the next frame is fetched.
const SEND_BUFFER: usize = 1 << 20;

/// Connections of admins at once, here or from afar.
pub(crate) const ADMINS: usize = 16;

/// How often an HTTP/2 connection is asked for a sign of life, and how long it has for it.
const PING: Duration = Duration::from_secs(20);

/// How long to wait after the system gave no connection, for want of file handles most of the time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The address a request came from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) IpAddr);

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
    let places = Arc::new(Semaphore::new(port.connections));
    let addresses = Addresses::new(port.connections / 2);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&port.listener, &places) => accepted,
            () = stop.cancelled() => return,
        };
        let Some((stream, from, place)) = accepted else {
            continue;
        };
        let Some(counted) = addresses.count(from) else {
            service.metrics.connections_refused.inc();
            tracing::debug!(%from, "a connection was closed: half of all this host takes come from there");
            continue;
        };
        let router = port.router.clone().layer(Extension(Peer(from)));
        let (tls, service, stop) = (port.tls.clone(), Arc::clone(&service), stop.clone());
        connections.spawn(async move {
            greet(stream, tls, router, service, stop).await;
            drop((place, counted));
        });
    }
}

/// Accepts admins until `stop`: few, and on this machine.
pub(crate) async fn serve_admin(
    listener: UnixListener,
    router: Router,
    header_time: Duration,
    stop: CancellationToken,
    connections: TaskTracker,
) {
    let places = Arc::new(Semaphore::new(ADMINS));
    loop {
        let accept = async {
            let place = Arc::clone(&places).acquire_owned().await.ok()?;
            Some((listener.accept().await, place))
        };
        let accepted = tokio::select! {
            accepted = accept => accepted,
            () = stop.cancelled() => return,
        };
        let Some((Ok((stream, _)), place)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(peer) = stream.peer_cred() else { continue };
        let admin = Admin::User(peer.uid());
        let (router, stop) = (router.clone().layer(Extension(admin)), stop.clone());
        connections.spawn(async move {
            let handler = service_fn(move |request: http::Request<Incoming>| router.clone().oneshot(request));
            let protocol = protocol(header_time);
            let serving = protocol.serve_connection(TokioIo::new(stream), handler);
            tokio::select! {
                outcome = serving => {
                    if let Err(error) = outcome {
                        tracing::debug!(%error, "an admin's connection ended early");
                    }
                }
                () = stop.cancelled() => {}
            }
            drop(place);
        });
    }
}

/// A place first, then a connection: those without a place wait in the system's queue.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, IpAddr, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, from)) => Some((stream, from.ip(), place)),
        Err(error) => {
            tracing::warn!(%error, "no connection could be accepted");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// Serves a connection, encrypted where there is a certificate; who does not shake hands in time is gone.
async fn greet(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    service: Arc<Service>,
    stop: CancellationToken,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection was gone at once");
        return;
    }
    let Some(tls) = tls else {
        return connection(stream, router, service, stop).await;
    };
    let shaking = timeout(service.config.limits.header_time, tls.accept(stream));
    let shaken = tokio::select! {
        shaken = shaking => shaken,
        () = stop.cancelled() => return,
    };
    match shaken {
        Ok(Ok(stream)) => connection(stream, router, service, stop).await,
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    service: Arc<Service>,
    stop: CancellationToken,
) {
    service.metrics.connections.inc();
    let header_time = service.config.limits.header_time;
    let spoke = Arc::new(AtomicBool::new(false));
    let heard = Arc::clone(&spoke);
    let handler = service_fn(move |request: http::Request<Incoming>| {
        heard.store(true, Ordering::Relaxed);
        router.clone().oneshot(request)
    });
    let protocol = protocol(header_time);
    let serving = protocol.serve_connection(TokioIo::new(stream), handler);
    tokio::pin!(serving);
    let mut stopping = false;
    let silence = tokio::time::sleep(header_time);
    tokio::pin!(silence);
    let mut first = true;
    loop {
        tokio::select! {
            outcome = serving.as_mut() => {
                if let Err(error) = outcome {
                    tracing::debug!(error = %error, "a connection ended early");
                }
                break;
            }
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                serving.as_mut().graceful_shutdown();
            }
            () = silence.as_mut(), if first => {
                first = false;
                if !spoke.load(Ordering::Relaxed) {
                    break;
                }
            }
            () = service.end.cancelled() => break,
        }
    }
    service.metrics.connections.dec();
}

fn protocol(header_time: Duration) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(header_time);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    builder
}
