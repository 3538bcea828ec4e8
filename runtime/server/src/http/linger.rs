//! Reads the remaining request body before a refusal is sent.

use super::answer::RequestStream;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http::Version;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::timeout;

/// Maximum bytes to read from a body only to deliver the answer. This covers guests and JSON requests, but
/// not large models.
const MAX_BYTES: u64 = 16 << 20;

/// Maximum time to read the rest of a body. The connection is then closed, and a slower client may miss the
/// answer.
const MAX_TIME: Duration = Duration::from_secs(5);

/// Reads the rest of the body, within [`MAX_BYTES`] and [`MAX_TIME`], before a 4xx response. HTTP/1.1
/// connections are closed after a response that precedes the end of the request. A client that is still
/// sending could then lose the response and only see a broken connection. HTTP/2 requests are passed on
/// unchanged.
pub(super) async fn linger(request: Request, next: Next) -> Response {
    if request.version() > Version::HTTP_11 {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let shared = SharedBody(Arc::new(Mutex::new(body)));
    let rest = RequestStream::new(shared.clone());
    let response = next
        .run(Request::from_parts(parts, RequestStream::new(shared)))
        .await;
    if response.status().is_client_error() {
        let _ = timeout(MAX_TIME, read(rest)).await;
    }
    response
}

async fn read(mut body: RequestStream) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, |piece| piece.len() as u64);
        if read >= MAX_BYTES {
            return;
        }
    }
}

/// Request body that the handler reads first, and [`linger`] afterwards.
#[derive(Clone)]
struct SharedBody(Arc<Mutex<RequestStream>>);

impl HttpBody for SharedBody {
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

    /// Returns the number of pieces that are read from a body with 64 pieces of 1 MiB before a response with
    /// `status`.
    async fn read_before(status: StatusCode, version: Version) -> u64 {
        let read = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&read);
        let pieces = stream::iter((0..64).map(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok::<_, std::io::Error>(Bytes::from(vec![0; 1 << 20]))
        }));
        let mut request = Request::put("/")
            .body(RequestStream::from_stream(pieces))
            .unwrap();
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
