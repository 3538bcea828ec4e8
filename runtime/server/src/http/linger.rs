//! The rest of a body whose request was refused before it was read.

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http::Version;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::timeout;

/// The most of a body that is read only so that the answer is: what a guest or a request may take, not a network.
const MOST: u64 = 16 << 20;

/// How long it may take: who is slower sees a broken connection, as everybody did.
const LONGEST: Duration = Duration::from_secs(5);

/// Reads what is left of the body before a refusal is answered. Over HTTP/1.1 the connection is closed after an answer that came before
/// the request's end, and a client that still sends may lose the answer with it: it would see a broken connection, not what is wrong.
pub(super) async fn linger(request: Request, next: Next) -> Response {
    if request.version() > Version::HTTP_11 {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let shared = Shared(Arc::new(Mutex::new(body)));
    let rest = Body::new(shared.clone());
    let response = next.run(Request::from_parts(parts, Body::new(shared))).await;
    if response.status().is_client_error() {
        let _ = timeout(LONGEST, read(rest)).await;
    }
    response
}

async fn read(mut body: Body) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, |piece| piece.len() as u64);
        if read >= MOST {
            return;
        }
    }
}

/// A body that is read by the handler, and afterwards by nobody else.
#[derive(Clone)]
struct Shared(Arc<Mutex<Body>>);

impl HttpBody for Shared {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut *self.0.lock()).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::middleware::from_fn;
    use axum::routing::put;
    use futures::stream;
    use http::StatusCode;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tower::ServiceExt;

    /// How much of a body of 64 pieces of 1 MiB is read when its request is answered with `status` at once.
    async fn read_before(status: StatusCode, version: Version) -> u64 {
        let read = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&read);
        let pieces = stream::iter((0..64).map(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok::<_, std::io::Error>(Bytes::from(vec![0; 1 << 20]))
        }));
        let mut request = Request::put("/").body(Body::from_stream(pieces)).unwrap();
        *request.version_mut() = version;
        let router = Router::new()
            .route("/", put(move || async move { status }))
            .layer(from_fn(linger));
        assert_eq!(router.oneshot(request).await.unwrap().status(), status);
        read.load(Ordering::SeqCst)
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_waits_for_a_body_that_is_not_too_large_and_nothing_else_does() {
        let refused = StatusCode::PAYLOAD_TOO_LARGE;
        assert_eq!(read_before(refused, Version::HTTP_11).await, 16);
        assert_eq!(read_before(refused, Version::HTTP_2).await, 0);
        assert_eq!(read_before(StatusCode::OK, Version::HTTP_11).await, 0);
    }
}
