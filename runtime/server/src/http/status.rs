//! HTTP status of every refusal. No other file maps failures to a status.

use super::answer::{Answer, OBJECT};
use crate::refusal::Refusal;
use crate::sampler::LogRateLimit;
use crate::scheduling::TenantMemory;
use crate::service::Service;
use axum::extract::rejection::PathRejection;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use frostline_wire::{ErrorBody, ErrorClass, UPLOAD_OFFSET};
use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// Retry delay for a host that shuts down, about the time of a restart.
const RESTART: Duration = Duration::from_secs(5);

/// Limits log lines about failed requests, which a tenant could cause in large numbers.
static FAILURES: LogRateLimit = LogRateLimit::new(4);

/// Maximum bytes of a message. It may contain a path or a name that the client has chosen.
const MAX_MESSAGE: usize = 1 << 10;

/// Body of a refusal, which [`explain`] adds to the response.
#[derive(Clone)]
struct Explanation(ErrorBody);

/// Marks a response with the memory that pays for the body of a refusal.
#[derive(Clone)]
pub(super) struct Payer(pub(super) TenantMemory);

/// Writes the bodies of refusals. The tenant pays for the memory, and clients without a token share a small
/// pool, so they can only take explanations from each other. If no memory is left, the response has a status
/// and no body.
pub(super) async fn explain(
    State((service, payer)): State<(Arc<Service>, TenantMemory)>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = next.run(request).await;
    let Some(Explanation(error)) = response.extensions_mut().remove() else {
        return response;
    };
    let payer = response
        .extensions_mut()
        .remove()
        .map_or(payer, |Payer(payer)| payer);
    let explained = payer
        .try_reserve(OBJECT)
        .and_then(|memory| Answer::json(&error, memory));
    match explained {
        Ok(explained) => explained.replace_body(&mut response),
        Err(_) => {
            service.operations.metrics.unexplained_refusals.inc();
        }
    }
    response
}

/// Converts an error of a path parameter, such as invalid UTF-8.
impl From<PathRejection> for Refusal {
    fn from(rejection: PathRejection) -> Self {
        Self::request(rejection.body_text())
    }
}

impl From<Infallible> for Refusal {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = status(&self);
        if self.class() == ErrorClass::Host
            && status.is_server_error()
            && let Some(left_out) = FAILURES.sample()
        {
            tracing::error!(error = %self, left_out, "request failed");
        }
        let mut message = self.to_string();
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        let class = self.class();
        let mut response = status.into_response();
        response
            .extensions_mut()
            .insert(Explanation(ErrorBody { class, message }));
        let unauthorized = status == StatusCode::UNAUTHORIZED;
        let headers = response.headers_mut();
        if let Some(wait) = retry_after(&self) {
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs_f64().ceil() as u64));
        }
        if let Self::Offset { has } = self {
            headers.insert(UPLOAD_OFFSET, HeaderValue::from(has));
        }
        if unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

fn status(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::Unauthorized
        | Refusal::NotAdmin
        | Refusal::Expired { .. }
        | Refusal::AdminExpired { .. } => StatusCode::UNAUTHORIZED,
        Refusal::Disabled
        | Refusal::Role { .. }
        | Refusal::GuestDisabled { .. }
        | Refusal::Budget { .. }
        | Refusal::Cancelled { .. } => StatusCode::FORBIDDEN,
        Refusal::Request { .. } => StatusCode::BAD_REQUEST,
        Refusal::Route { .. } | Refusal::NotFound { .. } => StatusCode::NOT_FOUND,
        Refusal::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
        Refusal::OtherVersion { .. } | Refusal::Offset { .. } => StatusCode::CONFLICT,
        Refusal::TooLarge { .. } | Refusal::Memory { .. } | Refusal::Quota { .. } => {
            StatusCode::PAYLOAD_TOO_LARGE
        }
        // The tenant's own limit was exceeded, so this is not a failure of the host (5xx).
        Refusal::Stalled { .. } | Refusal::Deadline { .. } => StatusCode::REQUEST_TIMEOUT,
        Refusal::Busy { .. } => StatusCode::TOO_MANY_REQUESTS,
        Refusal::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        Refusal::Guest { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        Refusal::Host { .. } => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn retry_after(refusal: &Refusal) -> Option<Duration> {
    match refusal {
        Refusal::Busy { retry_after, .. } => Some(*retry_after),
        Refusal::Stopping => Some(RESTART),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenants_own_limit_is_no_failure_of_the_host() {
        let response = Refusal::Deadline { seconds: 1 }.into_response();
        assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
        assert!(Refusal::host("broken").into_response().status().is_server_error());
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let response = Refusal::request(format!("a{}", "ü".repeat(15_000))).into_response();
        let Explanation(body) = response.extensions().get().unwrap();
        assert_eq!(body.message.len(), MAX_MESSAGE - 1);
    }
}
