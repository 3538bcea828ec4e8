//! Headers for resumable uploads. The names follow the draft "Resumable Uploads for HTTP", and the digest
//! follows RFC 9530.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Digest of the whole upload: `sha-256=:<base64>:`. Required for resuming an interrupted upload.
pub const REPR_DIGEST: &str = "repr-digest";

/// Number of received bytes. In a `PUT` request, the offset of the body.
pub const UPLOAD_OFFSET: &str = "upload-offset";

/// `?1` if the whole upload was verified and stored, otherwise `?0`.
pub const UPLOAD_COMPLETE: &str = "upload-complete";

/// Returns the value of [`REPR_DIGEST`] for a hexadecimal SHA-256, or `None` if it is malformed.
pub fn repr_digest(sha256: &str) -> Option<String> {
    let bytes = hex::decode(sha256).ok().filter(|bytes| bytes.len() == 32)?;
    Some(format!("sha-256=:{}:", STANDARD.encode(bytes)))
}

/// Returns the hexadecimal SHA-256 (lower case) from a value of [`REPR_DIGEST`]. Other algorithms are
/// ignored.
pub fn digest_of(value: &str) -> Option<String> {
    value.split(',').find_map(|member| {
        let encoded = member.trim().strip_prefix("sha-256=:")?.strip_suffix(':')?;
        let bytes = STANDARD.decode(encoded).ok()?;
        (bytes.len() == 32).then(|| hex::encode(bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_written_and_read_as_rfc_9530_says() {
        // Example from the RFC, for the representation {"hello": "world"} with a newline.
        let value = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:";
        let sha256 = digest_of(value).unwrap();
        assert_eq!(
            sha256,
            "44aff4ab2d7c3250525675a08f0cfa9591168cffe51791c5f5bbc417c15a6c38"
        );
        assert_eq!(repr_digest(&sha256).as_deref(), Some(value));
        assert_eq!(digest_of(&format!("sha-512=:AAAA:, {value}")), Some(sha256));
    }

    #[test]
    fn malformed_digests_are_refused() {
        for value in [
            "",
            "sha-256=",
            "sha-256=::",
            "sha-256=:AAAA:",
            "sha-256=:no base64:",
            "md5=:AAAA:",
        ] {
            assert_eq!(digest_of(value), None, "{value}");
        }
        for sha256 in ["", "44af", &"x".repeat(64)] {
            assert_eq!(repr_digest(sha256), None, "{sha256}");
        }
    }
}
