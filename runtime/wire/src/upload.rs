//! The headers of uploads that go on where they broke off, named as in the draft "Resumable Uploads for HTTP"; the digest as in
//! RFC 9530.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// What the whole upload hashes to: `sha-256=:<base64>:`. With it, a host keeps what came of an upload that breaks off.
pub const REPR_DIGEST: &str = "repr-digest";

/// How many bytes of an upload the host has; in a `PUT`, where its body goes on.
pub const UPLOAD_OFFSET: &str = "upload-offset";

/// `?1` when the host has the whole upload, checked and stored; else `?0`.
pub const UPLOAD_COMPLETE: &str = "upload-complete";

/// The value of [`REPR_DIGEST`] for a SHA-256 in hex; `None` for what is none.
pub fn repr_digest(sha256: &str) -> Option<String> {
    let bytes = hex::decode(sha256).ok().filter(|bytes| bytes.len() == 32)?;
    Some(format!("sha-256=:{}:", STANDARD.encode(bytes)))
}

/// The SHA-256, in lower-case hex, that a value of [`REPR_DIGEST`] names; other algorithms beside it are passed over.
pub fn digest_of(value: &str) -> Option<String> {
    let own = |member: &str| {
        let encoded = member.trim().strip_prefix("sha-256=:")?.strip_suffix(':')?;
        let bytes = STANDARD.decode(encoded).ok()?;
        (bytes.len() == 32).then(|| hex::encode(bytes))
    };
    value.split(',').find_map(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_written_and_read_as_rfc_9530_says() {
        // The RFC's own example: the representation {"hello": "world"} and a newline.
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
    fn what_is_no_sha256_is_none() {
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
