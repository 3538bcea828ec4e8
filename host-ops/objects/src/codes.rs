//! What stores answer, as far as it is told on: the error code, the HTTP status, what an element of an error document holds.

/// The longest text taken over: the operating system's messages are shorter.
pub(crate) const LONGEST_REASON: usize = 200;

/// Codes for credentials that are wrong or over, whatever they are used for.
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

/// The store's clock says otherwise than the signature.
pub(crate) const SKEWED: &str = "RequestTimeTooSkewed";

/// Whoever gives tokens for the credentials gives none.
pub(crate) const NO_TOKEN: &str = "no access token is given for these credentials";

/// Codes for credentials, or strangers, that are not allowed enough.
const REFUSALS: [&str; 3] = ["AccessDenied", "AuthorizationFailure", "PublicAccessNotPermitted"];

/// Codes for a bucket that is not there.
const NO_BUCKET: [&str; 5] = [
    "ContainerBeingDeleted",
    "ContainerNotFound",
    "InvalidBucketName",
    "InvalidResourceName",
    "NoSuchBucket",
];

/// Codes for a bucket that lies in another region than requests are signed for.
const ELSEWHERE: [&str; 4] = [
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "PermanentRedirect",
    "TemporaryRedirect",
];

/// Statuses of a store, or of what stands before it, that is busy, or down for a while.
const PASSING: [&str; 5] = ["408", "429", "502", "503", "504"];

/// What stands before the status where `object_store` tells of an answer: `503 Service Unavailable: <Error>..`.
const STATUS: &str = "status code: ";

/// Whether a code says that no request with these credentials is answered, whatever it asks for.
pub(crate) fn is_about_credentials(code: &str) -> bool {
    CREDENTIALS.contains(&code)
}

/// Whether a code says that access is refused.
pub(crate) fn is_refusal(code: &str) -> bool {
    is_about_credentials(code) || REFUSALS.contains(&code)
}

/// Whether a code says that there is no such bucket.
pub(crate) fn is_about_the_bucket(code: &str) -> bool {
    NO_BUCKET.contains(&code)
}

/// Whether a code says that the bucket lies in another region.
pub(crate) fn is_elsewhere(code: &str) -> bool {
    ELSEWHERE.contains(&code)
}

/// The code of an error document, such as `SlowDown`. S3, Google and Azure write it alike.
pub(crate) fn code(text: &str) -> Option<String> {
    element(text, "Code")
}

/// What an element of an error document holds, where it is a plain word.
pub(crate) fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (word, _) = rest.split_once(&format!("</{name}>"))?;
    let plain = word.len() <= 64
        && word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    plain.then(|| word.to_owned())
}

/// Whether an answer had this HTTP status.
pub(crate) fn answered(text: &str, status: &str) -> bool {
    let rest = text.split_once(STATUS);
    rest.is_some_and(|(_, rest)| rest.starts_with(status))
}

/// Whether an answer says that the store is busy, or down for a while.
pub(crate) fn may_pass(text: &str) -> bool {
    PASSING.iter().any(|status| answered(text, status))
}

/// The HTTP status in words, for an answer that is no error document.
pub(crate) fn status(text: &str) -> Option<String> {
    let (_, rest) = text.split_once(STATUS)?;
    let letters = rest.chars().take_while(|&letter| letter != ':');
    Some(letters.take(LONGEST_REASON).collect())
}
