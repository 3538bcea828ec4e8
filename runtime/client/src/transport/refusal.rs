//! Conversion of a host's refusal into an error.

use crate::ClientError;
use frostline_wire::{ErrorBody, ErrorClass};
use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use std::time::Duration;

/// Maximum length of a refusal's message in characters. Errors of guests have a few hundred.
const MAX_MESSAGE: usize = 4000;

/// Returns the error for an unsuccessful answer of `host`.
pub(super) fn refusal(host: &str, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ClientError {
    let (class, message) = match serde_json::from_slice::<ErrorBody>(body) {
        Ok(ErrorBody { class, message }) => (class, excerpt(&message, MAX_MESSAGE)),
        Err(_) => (class_of(status), excerpt(&String::from_utf8_lossy(body), 200)),
    };
    ClientError::Refused {
        host: host.to_owned(),
        status,
        class,
        message,
        retry_after: retry_after(headers),
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse::<u64>()
        .ok()?;
    Some(Duration::from_secs(seconds))
}

/// Derives the class if there is no Frostline error body, as in answers from proxies.
fn class_of(status: StatusCode) -> ErrorClass {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ErrorClass::Unauthorized,
        StatusCode::NOT_FOUND => ErrorClass::NotFound,
        StatusCode::PAYLOAD_TOO_LARGE => ErrorClass::TooLarge,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => ErrorClass::Busy,
        status if status.is_client_error() => ErrorClass::Request,
        _ => ErrorClass::Host,
    }
}

fn excerpt(text: &str, most: usize) -> String {
    let text: String = text.chars().take(most).collect();
    if text.trim().is_empty() {
        "no reason given".to_owned()
    } else {
        text.trim().to_owned()
    }
}
