//! Fuzz target for network input: JSON requests and headers of uploads.

use frostline_wire::{
    DescriptionRequest, Encoding, ExtractionRequest, ProfileRequest, Split, digest_of, repr_digest,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Parses the bytes as every request and as a header.
///
/// # Panics
/// Panics if a parsed value changes when written and parsed again.
pub fn request_parser(data: &[u8]) {
    json::<ExtractionRequest>(data);
    json::<DescriptionRequest>(data);
    json::<ProfileRequest>(data);
    if let Ok(text) = std::str::from_utf8(data) {
        header(text);
    }
}

fn json<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(data: &[u8]) {
    let Ok(request) = serde_json::from_slice::<T>(data) else {
        return;
    };
    let again = serde_json::to_vec(&request).and_then(|bytes| serde_json::from_slice::<T>(&bytes));
    assert_eq!(again.ok(), Some(request));
}

fn header(text: &str) {
    if let Some(sha256) = digest_of(text) {
        let written = repr_digest(&sha256).and_then(|value| digest_of(&value));
        assert_eq!(written, Some(sha256));
    }
    if let Ok(encoding) = text.parse::<Encoding>() {
        assert_eq!(encoding.to_string().parse().ok(), Some(encoding));
    }
    let split = Split::from(text);
    assert_eq!(Split::from(split.to_string()), split);
}

/// Returns requests as sent by trainers, and headers.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let pin = r#"{"name":"m","sha256":"00"}"#;
    let samples = r#"[{"position":0,"key":"a/b.jpg","etag":"\"1\""},{"position":4294967295,"key":"c"}]"#;
    let texts = [
        format!(
            r#"{{"root":"s3://photos/acme/","split":"features","guest":{pin},"model":{pin},"parameters":"{{}}","encoding":"int8+zstd","samples":{samples}}}"#
        ),
        format!(r#"{{"root":"/data","split":"none","samples":{samples}}}"#),
        format!(r#"{{"guest":{pin},"model":{pin}}}"#),
        format!(r#"{{"root":"/data","guest":{pin},"model":{pin},"cuts":["a","b"],"samples":[]}}"#),
        repr_digest(&"0123456789abcdef".repeat(4)).unwrap_or_default(),
        "sha-512=:AAAA:, sha-256=:AAAA:".into(),
        "f16+lz4".into(),
        "[".repeat(4096),
        format!(r#"{{"samples":{}"#, "[".repeat(200)),
    ];
    texts.into_iter().map(String::into_bytes).collect()
}
