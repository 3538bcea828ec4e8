//! Converts errors of `object_store` to [`ObjectError`].
//!
//! Messages of `object_store` include entire response bodies. S3's bodies repeat the refused request and the
//! session token. Errors therefore contain only the error code, the HTTP status, and the message of the
//! operating system.

use crate::codes::{
    ARCHIVED, ELSEWHERE, LONGEST_REASON, NO_BUCKET, NO_TOKEN, SKEWED, answered, code, element, is_refusal,
    is_virtual_host_only, may_pass, status, storage_class,
};
use crate::kind::{Credentials, Kind};
use crate::local::{is_without_root, leads_out, loops};
use crate::root::{LISTING, OWN_BUCKET, Root};
use crate::{Fault, ObjectError};
use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};

/// Message of `object_store` if a redirect has no target.
const BARE_REDIRECT: &str = "redirect without LOCATION";

/// Advice for an expired or future signature.
const CLOCK_ADVICE: &str =
    "the clocks of this machine and the store differ too much; synchronize this machine's clock (NTP)";

/// Advice for a store with separate credentials.
const OWN_ADVICE: &str = "check keys, profile, role and external_id under [store.BUCKET] in the host's configuration, and what they are \
                          allowed to do";

/// Text in errors of `object_store` that come from a token service instead of the store.
const TOKEN_REQUEST: &str = "Error performing token request";

impl Root {
    /// Converts a store's error about `key`.
    pub(crate) fn explain(&self, error: &Error, key: &str) -> ObjectError {
        let Self {
            kind, credentials, ..
        } = *self;
        let root = self.shown.clone();
        let key = key.to_owned();
        let text = error.to_string();
        let code = code(&text);
        if kind == Kind::Folder
            && let Some(reason) = bad_link(error)
        {
            return ObjectError::Key { key, reason };
        }
        let lists = key == LISTING && kind.is_remote();
        match (error, code.as_deref()) {
            (_, Some(code)) if NO_BUCKET.contains(&code) => self.missing(),
            (_, Some(code)) if ARCHIVED.contains(&code) => ObjectError::Archived {
                key,
                root,
                class: storage_class(&text),
            },
            (_, Some(code)) if kind == Kind::S3 && is_virtual_host_only(code, &text) => {
                virtual_host_only(root, code)
            }
            (_, Some(code)) if ELSEWHERE.contains(&code) => elsewhere(root, code, &text),
            (_, Some(code)) if is_refusal(code) => self.denied(&key, code),
            // Azure reports private objects as missing to anonymous requests.
            (Error::NotFound { .. }, Some(code @ "ResourceNotFound"))
                if kind == Kind::Azure && credentials == Credentials::Unsigned =>
            {
                self.denied(&key, code)
            }
            // An existing bucket has a listing even if it is empty.
            (Error::NotFound { .. }, _) if lists || is_without_root(error) => self.missing(),
            (Error::NotFound { .. }, _) => ObjectError::NotFound { key, root },
            (Error::Precondition { .. } | Error::NotModified { .. }, _) => ObjectError::Changed { key, root },
            (Error::AlreadyExists { .. }, _) => ObjectError::AlreadyThere { key, root },
            (Error::PermissionDenied { .. } | Error::Unauthenticated { .. }, _) => {
                self.denied(&key, code.as_deref().unwrap_or("access denied"))
            }
            (_, None) if text.contains(BARE_REDIRECT) => elsewhere(root, "a redirect", &text),
            (_, None) if credentials == Credentials::Missing && asks_for_a_role(&text) => {
                ObjectError::NoCredentials {
                    root,
                    advice: kind.missing_credentials_advice(),
                }
            }
            (_, None) if text.contains(TOKEN_REQUEST) && answered(&text, "4") && !may_pass(&text) => {
                self.denied(&key, NO_TOKEN)
            }
            // Some servers do not send an error document.
            (_, None) if lists && kind != Kind::Web && answered(&text, "404") => self.missing(),
            (_, None) if failed_by(error, HttpErrorKind::Connect) => ObjectError::Unreachable {
                root,
                reason: innermost(error),
                advice: self.connection_advice(error),
            },
            _ => Self::failed_otherwise(error, &text, code, key, root),
        }
    }

    fn denied(&self, key: &str, reason: &str) -> ObjectError {
        ObjectError::Denied {
            key: key.to_owned(),
            root: self.shown.clone(),
            reason: reason.to_owned(),
            everywhere: key == LISTING,
            advice: self.access_advice(reason),
        }
    }

    /// Returns the advice for a failed connection.
    fn connection_advice(&self, error: &Error) -> &'static str {
        match self.credentials {
            _ if is_about_trust(error) => self.kind.trust_advice(),
            Credentials::Own => OWN_BUCKET,
            _ => self.kind.address_advice(),
        }
    }

    /// Returns the advice for refused access.
    fn access_advice(&self, reason: &str) -> &'static str {
        match self.credentials {
            _ if reason == SKEWED => CLOCK_ADVICE,
            Credentials::Unsigned => self.kind.unsigned_advice(),
            Credentials::Own => OWN_ADVICE,
            Credentials::Given | Credentials::Missing => self.kind.credentials_advice(),
        }
    }

    /// Returns the error for a failure that only the store's answer describes.
    fn failed_otherwise(
        error: &Error,
        text: &str,
        code: Option<String>,
        key: String,
        root: String,
    ) -> ObjectError {
        if matches!(error, Error::NotSupported { .. }) {
            let reason = "HTTP range requests are not supported".into();
            return ObjectError::Unsupported { key, root, reason };
        }
        let answer = code
            .or_else(|| status(text))
            .map(|answer| format!("it answered {answer}"));
        let reason = answer.unwrap_or_else(|| innermost(error)).into();
        if answered(text, "501") {
            return ObjectError::Unsupported { key, root, reason };
        }
        ObjectError::Store {
            key,
            root,
            reason,
            fault: if may_pass(text) {
                Fault::Busy
            } else if status(text).is_none() && failed_by(error, HttpErrorKind::Timeout) {
                Fault::Timeout
            } else if status(text).is_none() && http_errors(error).next().is_some() {
                Fault::Broken
            } else {
                Fault::Failed
            },
        }
    }
}

/// Returns the error for a bucket in another region. Some stores report the correct region.
fn elsewhere(root: String, answer: &str, text: &str) -> ObjectError {
    let region = element(text, "Region");
    let region = region.map_or_else(|| "the bucket's".to_owned(), |region| format!("'{region}'"));
    ObjectError::Root {
        root,
        reason: format!(
            "requests are signed for a different region than the bucket's (it answered {answer}); set AWS_REGION to \
             {region} in the environment of this process"
        )
        .into(),
    }
}

/// Returns the error for a store that only accepts the bucket in the host name.
fn virtual_host_only(root: String, answer: &str) -> ObjectError {
    ObjectError::Root {
        root,
        reason: format!(
            "the store requires the bucket in the host name (it answered {answer}); set \
             AWS_VIRTUAL_HOSTED_STYLE_REQUEST=true and AWS_ENDPOINT_URL=https://BUCKET.HOST in the environment of this \
             process, or virtual_host = true and such an endpoint under [store.BUCKET] in the host's configuration"
        )
        .into(),
    }
}

/// Returns true if the request was made to obtain the machine's role, not to the store.
fn asks_for_a_role(text: &str) -> bool {
    let role = [TOKEN_REQUEST, "/latest/api/token", "/latest/meta-data/"];
    role.iter().any(|part| text.contains(part))
}

/// Returns the reason if a link cannot be followed.
fn bad_link(error: &Error) -> Option<&'static str> {
    if !matches!(error, Error::Generic { .. }) {
        return None;
    }
    sources(error).find_map(|source| match source.downcast_ref()? {
        error if leads_out(error) => Some("the link target is outside of the data root"),
        error if loops(error) => Some("the link leads to itself, or through too many other links"),
        _ => None,
    })
}

/// Returns true if the connection failed because the store's certificate is not trusted.
fn is_about_trust(error: &Error) -> bool {
    sources(error).any(|source| source.to_string().contains("invalid peer certificate"))
}

/// Returns true if a request failed for the reason `kind`.
fn failed_by(error: &Error, kind: HttpErrorKind) -> bool {
    http_errors(error).any(|error| error.kind() == kind)
}

fn http_errors(error: &Error) -> impl Iterator<Item = &HttpError> {
    sources(error).filter_map(|source| source.downcast_ref::<HttpError>())
}

/// Returns the innermost cause on a single line. The text originates from the operating system or HTTP
/// client. Errors with a response body are already handled by status.
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
    use frostline_tensor::OpError;

    fn explain(error: &Error, root: &str, key: &str, kind: Kind, credentials: Credentials) -> ObjectError {
        let root = Root {
            shown: root.to_owned(),
            kind,
            credentials,
            on_fault: Default::default(),
        };
        root.explain(error, key)
    }

    fn generic(text: &str) -> ObjectError {
        explain(
            &Error::Generic {
                store: "S3",
                source: text.into(),
            },
            "s3://photos",
            "a.jpg",
            Kind::S3,
            Credentials::Given,
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
            Credentials::Given,
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
    fn host_failures_are_distinguished_from_object_failures() {
        let of_the_host = |error: ObjectError| OpError::from(error).host_caused;
        let answer = |status: &str, code: &str| {
            generic(&format!(
                "status code: {status} Some Words: <Error><Code>{code}</Code></Error>"
            ))
        };
        assert!(of_the_host(answer("503", "SlowDown")));
        assert!(of_the_host(answer("400", "ExpiredToken")));
        assert!(of_the_host(generic("status code: 502 Bad Gateway: <html/>")));
        // A broken object fails like this permanently.
        assert!(!of_the_host(answer("500", "InternalError")));
        assert!(!of_the_host(answer("416", "InvalidRange")));
        let error = answer("501", "NotImplemented");
        assert!(matches!(&error, ObjectError::Unsupported { .. }), "{error}");
        assert!(!of_the_host(error));
        let denied = |code: &str| {
            let source = format!("status code: 403 Forbidden: <Error><Code>{code}</Code></Error>").into();
            let path = "a.jpg".to_owned();
            explain(
                &Error::PermissionDenied { path, source },
                "r",
                "a.jpg",
                Kind::S3,
                Credentials::Given,
            )
        };
        assert!(of_the_host(denied("SignatureDoesNotMatch")));
        assert!(
            !of_the_host(denied("AccessDenied")),
            "other objects may be readable"
        );
        let token =
            generic("Error performing token request: status code: 401 Unauthorized: {\"error\":\"geheim\"}");
        assert!(matches!(&token, ObjectError::Denied { .. }), "{token}");
        assert!(!token.to_string().contains("geheim") && of_the_host(token));
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
            explain(&bucket, "r", "k", Kind::S3, Credentials::Given),
            ObjectError::NoSuchRoot { .. }
        ));
        assert!(matches!(
            explain(&object, "r", "k", Kind::S3, Credentials::Given),
            ObjectError::NotFound { .. }
        ));
        let other = Error::Generic {
            store: "S3",
            source: "Error performing PUT http://169.254.169.254/latest/api/token in 10s".into(),
        };
        assert!(matches!(
            explain(&other, "r", "k", Kind::S3, Credentials::Missing),
            ObjectError::NoCredentials { .. }
        ));
    }

    #[test]
    fn a_store_that_needs_virtual_hosts_names_the_setting() {
        for body in [
            "403 Forbidden: <Error><Code>SecondLevelDomainForbidden</Code></Error>",
            "403 Forbidden: <Error><Code>AccessDenied</Code><Message>Please use virtual hosted style to access.</Message></Error>",
            "400 Bad Request: <Error><Code>PathStyleDomainForbidden</Code></Error>",
        ] {
            let text = generic(&format!("status code: {body}")).to_string();
            assert!(
                text.contains("AWS_VIRTUAL_HOSTED_STYLE_REQUEST=true") && !text.contains("AWS_ACCESS_KEY_ID"),
                "{text}"
            );
        }
    }

    #[test]
    fn an_archived_object_is_named_with_its_storage_class() {
        for (status, code, class, said) in [
            (
                "403 Forbidden",
                "InvalidObjectState",
                "<StorageClass>GLACIER</StorageClass>",
                "GLACIER",
            ),
            ("403 Forbidden", "InvalidObjectState", "", "storage class unknown"),
            ("409 Conflict", "BlobArchived", "", "storage class unknown"),
        ] {
            let error = generic(&format!(
                "status code: {status}: <Error><Code>{code}</Code>{class}</Error>"
            ));
            assert!(matches!(&error, ObjectError::Archived { .. }), "{error}");
            let error = OpError::from(error);
            assert!(!error.host_caused && error.message.contains(said), "{error}");
        }
    }

    #[test]
    fn clocks_that_differ_are_not_taken_for_wrong_keys() {
        let skewed = generic("status code: 403 Forbidden: <Error><Code>RequestTimeTooSkewed</Code></Error>");
        let text = skewed.to_string();
        assert!(
            text.contains("clocks") && !text.contains("AWS_ACCESS_KEY_ID"),
            "{text}"
        );
    }

    #[test]
    fn what_is_wrong_with_a_root_is_told_with_what_to_do() {
        let body = |code: &str| {
            format!(
                "status code: 400 Bad Request: <Error><Code>{code}</Code><Region>eu-west-1</Region></Error>"
            )
        };
        let listing = |source: &str, kind, credentials| {
            let source = source.to_owned().into();
            let error = Error::Generic { store: "S3", source };
            explain(&error, "s3://photos", LISTING, kind, credentials).to_string()
        };
        for (source, said) in [
            (
                body("AuthorizationHeaderMalformed"),
                "set AWS_REGION to 'eu-west-1'",
            ),
            (body("PermanentRedirect"), "set AWS_REGION to 'eu-west-1'"),
            (
                format!("Received {BARE_REDIRECT}, this"),
                "set AWS_REGION to the bucket's",
            ),
            (body("NoSuchBucket"), "check the bucket's name"),
            (body("InvalidBucketName"), "check the bucket's name"),
        ] {
            let text = listing(&source, Kind::S3, Credentials::Given);
            assert!(text.contains(said), "{text}");
        }
        let text = listing(&body("AccessDenied"), Kind::S3, Credentials::Unsigned);
        assert!(
            text.contains("AWS_SKIP_SIGNATURE") && text.contains("AWS_ACCESS_KEY_ID"),
            "{text}"
        );
        for code in ["PublicAccessNotPermitted", "NoAuthenticationInformation"] {
            let text = listing(&body(code), Kind::Azure, Credentials::Unsigned);
            assert!(text.contains("AZURE_SKIP_SIGNATURE"), "{text}");
        }
        let missing = |key: &str, code: &str, kind, credentials| {
            let source = body(code).into();
            let path = key.to_owned();
            explain(&Error::NotFound { path, source }, "r", key, kind, credentials)
        };
        let hidden = missing("a.jpg", "ResourceNotFound", Kind::Azure, Credentials::Unsigned);
        assert!(matches!(hidden, ObjectError::Denied { .. }), "{hidden}");
        let bucket = missing(LISTING, "", Kind::Google, Credentials::Given);
        assert!(matches!(bucket, ObjectError::NoSuchRoot { .. }), "{bucket}");
        let text = listing("status code: 404 Not Found: no", Kind::Google, Credentials::Given);
        assert!(text.contains("check the bucket's name"), "{text}");
        let text = listing(
            "Error performing token request: Error performing GET http://metadata/: 404 Not Found",
            Kind::Google,
            Credentials::Missing,
        );
        assert!(
            text.contains("there are no credentials"),
            "the machine's role was asked: {text}"
        );
    }
}
