//! HTTP status of every refusal. No other file maps failures to a status.

use crate::refusal::Refusal;
use crate::sampler::LogRateLimit;
use axum::response::{IntoResponse, Response};
use frostline_wire::{ErrorBody, ErrorClass, UPLOAD_OFFSET};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use std::time::Duration;

/// Retry delay for a host that shuts down, about the time of a restart.
const RESTART: Duration = Duration::from_secs(5);

/// Limits log lines about failed requests, which a tenant could cause in large numbers.
static FAILURES: LogRateLimit = LogRateLimit::new(4);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = status(&self);
        if self.class() == ErrorClass::Host
            && status.is_server_error()
            && let Some(left_out) = FAILURES.sample()
        {
            tracing::error!(error = %self, left_out, "request failed");
        }
        let body = ErrorBody {
            class: self.class(),
            message: self.to_string(),
        };
        let json = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = (status, json).into_response();
        let unauthorized = status == StatusCode::UNAUTHORIZED;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
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
        Refusal::Unauthorized | Refusal::NotAdmin | Refusal::Expired { .. } => StatusCode::UNAUTHORIZED,
        Refusal::Disabled
        | Refusal::ReadOnly
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
}
