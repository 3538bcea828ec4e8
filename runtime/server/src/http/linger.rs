//! The rest of a body whose request was refused before it was read.

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http::Version;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

impl Shared {
    fn body(&self) -> MutexGuard<'_, Body> {
        // A body that was left half-read by a panic is read on.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpBody for Shared {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut *self.body()).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body().size_hint()
    }
}
