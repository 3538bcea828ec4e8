//! What a store's error means to the person who gets it.
//!
//! `object_store` puts whole response bodies into its texts. Those of S3 repeat the request they refuse, with the session token
//! in it, so nothing is taken over but the error code, the HTTP status, and what the operating system said.

use crate::ObjectError;
use crate::open::Kind;
use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};

/// The longest text taken over: the operating system's messages are shorter.
const LONGEST_REASON: usize = 200;

/// Codes for credentials that are wrong, over, or not allowed enough.
const REFUSALS: [&str; 8] = [
    "AccessDenied",
    "AuthenticationFailed",
    "AuthorizationFailure",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
];

/// A store's error about `key`; `credentials` tells whether any were given.
pub(crate) fn explain(error: &Error, root: &str, key: &str, kind: Kind, credentials: bool) -> ObjectError {
    let (root, key) = (root.to_owned(), key.to_owned());
    let code = code(&error.to_string());
    match (error, code.as_deref()) {
        (_, Some("NoSuchBucket" | "ContainerNotFound")) => ObjectError::NoSuchRoot {
            root,
            advice: kind.address_advice(),
        },
        (Error::NotFound { .. }, _) => ObjectError::NotFound { key, root },
        (Error::Precondition { .. } | Error::NotModified { .. }, _) => ObjectError::Changed { key, root },
        (Error::AlreadyExists { .. }, _) => ObjectError::AlreadyThere { key, root },
        (Error::PermissionDenied { .. } | Error::Unauthenticated { .. }, _) => {
            let reason = code.unwrap_or_else(|| "access denied".to_owned());
            ObjectError::Denied {
                key,
                root,
                reason,
                advice: kind.credentials_advice(),
            }
        }
        // Listings come as errors of no class, whatever their status was.
        (_, Some(code)) if REFUSALS.contains(&code) => ObjectError::Denied {
            key,
            root,
            reason: code.to_owned(),
            advice: kind.credentials_advice(),
        },
        (_, Some(code)) => ObjectError::Store {
            key,
            root,
            reason: format!("it answered {code}"),
        },
        _ if !credentials => ObjectError::NoCredentials {
            root,
            advice: kind.missing_credentials_advice(),
        },
        _ if cannot_connect(error) => ObjectError::Unreachable {
            root,
            reason: innermost(error),
            advice: kind.address_advice(),
        },
        (Error::NotSupported { .. }, _) => ObjectError::Store {
            key,
            root,
            reason: "it does not serve parts of an object (HTTP range requests)".to_owned(),
        },
        _ => ObjectError::Store {
            key,
            root,
            reason: status(error).unwrap_or_else(|| innermost(error)),
        },
    }
}

/// The code of an error document, such as `SlowDown`. S3, Google and Azure write it alike.
fn code(text: &str) -> Option<String> {
    let (code, _) = text.split_once("<Code>")?.1.split_once("</Code>")?;
    let plain = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    plain.then(|| code.to_owned())
}

/// The HTTP status, for an answer that is no error document.
fn status(error: &Error) -> Option<String> {
    let text = error.to_string();
    let (_, rest) = text.split_once("status code: ")?;
    let status: String = rest
        .chars()
        .take_while(|&letter| letter != ':')
        .take(LONGEST_REASON)
        .collect();
    Some(format!("it answered {status}"))
}

fn cannot_connect(error: &Error) -> bool {
    sources(error).any(|source| {
        source
            .downcast_ref::<HttpError>()
            .is_some_and(|error| matches!(error.kind(), HttpErrorKind::Connect))
    })
}

/// The text of the first cause, on one line. Only the operating system and the HTTP client speak here: an answer's body never
/// gets this far, it is caught by its status.
fn innermost(error: &Error) -> String {
    let text = sources(error)
        .last()
        .map_or_else(|| error.to_string(), ToString::to_string);
    text.chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .take(LONGEST_REASON)
        .collect()
}

fn sources(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| {
        error.source()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> ObjectError {
        explain(
            &Error::Generic {
                store: "S3",
                source: text.into(),
            },
            "s3://photos",
            "a.jpg",
            Kind::S3,
            true,
        )
    }

    #[test]
    fn an_answers_body_is_not_repeated() {
        let body = "<Error><Code>SignatureDoesNotMatch</Code><CanonicalRequest>x-amz-security-token:abc123</CanonicalRequest></Error>";
        let denied = explain(
            &Error::PermissionDenied {
                path: "a.jpg".into(),
                source: body.into(),
            },
            "s3://photos",
            "a.jpg",
            Kind::S3,
            true,
        );
        assert!(matches!(&denied, ObjectError::Denied { reason, .. } if reason == "SignatureDoesNotMatch"));
        let page = generic("Server returned non-2xx status code: 502 Bad Gateway: <html>token abc123</html>");
        assert!(page.to_string().contains("502 Bad Gateway"));
        for error in [
            denied,
            page,
            generic(&format!("Server returned error response: {body}")),
        ] {
            assert!(!error.to_string().contains("abc123"), "{error}");
        }
    }

    #[test]
    fn missing_buckets_and_missing_credentials_are_told_apart_from_missing_objects() {
        let missing = |body: &str| Error::NotFound {
            path: "a.jpg".into(),
            source: body.into(),
        };
        let bucket = missing("404 Not Found: <Error><Code>NoSuchBucket</Code></Error>");
        let object = missing("404 Not Found: <Error><Code>NoSuchKey</Code></Error>");
        assert!(matches!(
            explain(&bucket, "r", "k", Kind::S3, true),
            ObjectError::NoSuchRoot { .. }
        ));
        assert!(matches!(
            explain(&object, "r", "k", Kind::S3, true),
            ObjectError::NotFound { .. }
        ));
        let other = Error::Generic {
            store: "S3",
            source: "no route to the instance's metadata".into(),
        };
        assert!(matches!(
            explain(&other, "r", "k", Kind::S3, false),
            ObjectError::NoCredentials { .. }
        ));
    }
}
