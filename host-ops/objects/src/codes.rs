//! Extracts the parts of a store's answer that are safe to repeat in errors: the error code, the HTTP status,
//! and elements of an error document.

/// Maximum number of characters copied from an error. Messages of the operating system are shorter.
pub(crate) const LONGEST_REASON: usize = 200;

/// Codes for wrong or expired credentials, regardless of the request.
const CREDENTIALS: [&str; 10] = [
    "AuthenticationFailed",
    "AuthenticationRequired",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidSecurity",
    "InvalidToken",
    "NoAuthenticationInformation",
    SKEWED,
    "SignatureDoesNotMatch",
    NO_TOKEN,
];

/// Code for a signature whose time differs from the store's clock.
pub(crate) const SKEWED: &str = "RequestTimeTooSkewed";

/// Reason in errors if the token service refuses the credentials.
pub(crate) const NO_TOKEN: &str = "the token service refused the credentials";

/// Codes for credentials or anonymous requests without sufficient permissions.
const REFUSALS: [&str; 3] = ["AccessDenied", "AuthorizationFailure", "PublicAccessNotPermitted"];

/// Codes for a missing bucket.
pub(crate) const NO_BUCKET: [&str; 5] = [
    "ContainerBeingDeleted",
    "ContainerNotFound",
    "InvalidBucketName",
    "InvalidResourceName",
    "NoSuchBucket",
];

/// Codes for a bucket in the wrong region.
pub(crate) const ELSEWHERE: [&str; 4] = [
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "PermanentRedirect",
    "TemporaryRedirect",
];

/// Codes for an object in an archive storage class, which must be restored before it can be read.
pub(crate) const ARCHIVED: [&str; 3] = ["BlobArchived", "BlobBeingRehydrated", "InvalidObjectState"];

/// Codes for a store that only accepts the bucket in the host name: Alibaba, Tencent and Volcengine.
const VIRTUAL_HOST_ONLY: [&str; 3] = [
    "InvalidPathAccess",
    "PathStyleDomainForbidden",
    "SecondLevelDomainForbidden",
];

/// HTTP statuses of a busy or temporarily unavailable store or proxy.
const PASSING: [&str; 5] = ["408", "429", "502", "503", "504"];

/// Text before the status in `object_store`'s errors (`503 Service Unavailable: <Error>..`).
const STATUS: &str = "status code: ";

/// Returns true if the code means that every request with these credentials is refused.
pub(crate) fn is_about_credentials(code: &str) -> bool {
    CREDENTIALS.contains(&code)
}

/// Returns true if the code means that access is refused.
pub(crate) fn is_refusal(code: &str) -> bool {
    is_about_credentials(code) || REFUSALS.contains(&code)
}

/// Returns true if the store refuses the bucket in the path. Stores without a known code say so in the message.
pub(crate) fn is_virtual_host_only(code: &str, text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let said = ["virtual host", "virtual-host", "virtual-style", "virtual style"];
    VIRTUAL_HOST_ONLY.contains(&code) || said.iter().any(|words| text.contains(words))
}

/// Returns the storage class in an error document or listing, for example `DEEP_ARCHIVE`.
pub(crate) fn storage_class(text: &str) -> Option<String> {
    element(text, "StorageClass").or_else(|| element(text, "AccessTier"))
}

/// Returns the code in an error document, for example `SlowDown`. S3, Google and Azure use the same format.
pub(crate) fn code(text: &str) -> Option<String> {
    element(text, "Code")
}

/// Returns the text of an element in an error document, if it consists of up to 64 ASCII letters, digits,
/// hyphens and underscores.
pub(crate) fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (word, _) = rest.split_once(&format!("</{name}>"))?;
    let plain = word.len() <= 64
        && word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    plain.then(|| word.to_owned())
}

/// Returns true if the HTTP status of the answer starts with `status`.
pub(crate) fn answered(text: &str, status: &str) -> bool {
    let rest = text.split_once(STATUS);
    rest.is_some_and(|(_, rest)| rest.starts_with(status))
}

/// Returns true if the answer means that the store is busy or temporarily down.
pub(crate) fn may_pass(text: &str) -> bool {
    PASSING.iter().any(|status| answered(text, status))
}

/// Returns the HTTP status in words, for an answer without an error document.
pub(crate) fn status(text: &str) -> Option<String> {
    let (_, rest) = text.split_once(STATUS)?;
    let letters = rest.chars().take_while(|&letter| letter != ':');
    Some(letters.take(LONGEST_REASON).collect())
}
