//! Counts the bytes of all answers to a tenant, and ends those beyond the tenant's budget of the day.

#![expect(clippy::disallowed_types, reason = "wraps reserved bodies")]

use crate::caller::Caller;
use crate::refusal::Refusal;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use frostline_wire::QuotaKey;
use http::Method;
use http_body::{Body as HttpBody, Frame, SizeHint};
use prometheus_client::metrics::counter::Counter;
use std::pin::Pin;
use std::task::{Context, Poll};

/// True for requests that the budget limits. Uploads and removals have short answers, which are only counted.
pub(super) fn is_limited(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::POST)
}

/// Body of an answer to a tenant.
struct MeteredBody {
    body: Body,
    sent: Counter,
    /// The tenant whose budget limits the body, or `None` if the bytes are only counted.
    limited: Option<Caller>,
}

/// Error that aborts a body.
#[derive(Debug, thiserror::Error)]
enum Aborted {
    #[error(transparent)]
    Answer(#[from] axum::Error),
    #[error("the answer was ended: {0}")]
    OverBudget(Refusal),
}

/// Counts the bytes of an answer to `caller`. If `limited` is true and the answer is not a refusal, it ends when
/// the budget of the day is used up.
pub(super) fn metered(caller: &Caller, limited: bool, response: Response) -> Response {
    let sent = caller.metrics().tenants.sent_bytes_of(&caller.tenant().name);
    let limited = (limited && response.status().is_success()).then(|| caller.clone());
    response.map(|body| Body::new(MeteredBody { body, sent, limited }))
}

impl HttpBody for MeteredBody {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        let Some(frame) = futures::ready!(Pin::new(&mut self.body).poll_frame(cx)) else {
            return Poll::Ready(None);
        };
        let frame = frame?;
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        if bytes > 0 {
            if let Some(caller) = &self.limited {
                caller
                    .check_budget(QuotaKey::BytesPerDay)
                    .map_err(Aborted::OverBudget)?;
            }
            self.sent.inc_by(bytes as u64);
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
