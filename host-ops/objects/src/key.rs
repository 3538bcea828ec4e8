use crate::ObjectError;
use object_store::path::Path;
use percent_encoding::percent_decode_str;

/// Maximum key length in bytes, S3's limit.
pub(crate) const MAX_KEY_LENGTH: usize = 1024;

/// Maximum number of characters shown for a refused key.
const SHOWN: usize = 120;

/// Validates a key received from a client: it must be relative and consist of plain segments that cannot
/// leave the root.
pub(crate) fn checked(key: &str) -> Result<Path, ObjectError> {
    if key.is_empty() {
        return Err(refused(key, "it is empty"));
    }
    if key.len() > MAX_KEY_LENGTH {
        return Err(refused(key, "it is longer than 1024 bytes"));
    }
    if key.chars().any(char::is_control) {
        return Err(refused(key, "control characters"));
    }
    for segment in key.split('/') {
        match segment {
            "" => return Err(refused(key, "empty segment, or '/' at the start or end")),
            "." | ".." => return Err(refused(key, "segment '.' or '..'")),
            _ => {}
        }
    }
    if misleads(key) {
        return Err(refused(
            key,
            "it would be invalid once percent escapes are decoded or backslashes become slashes",
        ));
    }
    Path::parse(key).map_err(|_| refused(key, "it is not a valid object store path"))
}

fn refused(key: &str, reason: &'static str) -> ObjectError {
    ObjectError::Key {
        key: key.chars().take(SHOWN).collect(),
        reason,
    }
}

/// Returns true if `key` would be invalid once its percent escapes are decoded or its backslashes become
/// slashes. Keys are used literally here, but a proxy or gateway in front of a store might do either. Other
/// escapes (`a%2Fb.jpg`) are harmless.
fn misleads(key: &str) -> bool {
    let decoded: Vec<u8> = percent_decode_str(key).collect();
    decoded.iter().any(u8::is_ascii_control)
        || decoded
            .split(|byte| matches!(byte, b'/' | b'\\'))
            .any(|segment| matches!(segment, b"" | b"." | b".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_keys_pass() {
        for key in [
            "a.jpg",
            "train/cat/1 2.jpg",
            "ü/ß.png",
            "a..b/c",
            "50%.jpg",
            "a%20b",
            "%é",
            "a%2Fb.jpg",
            "a%5cb.jpg",
            "cat\\1.jpg",
            "a%2e.jpg",
        ] {
            let path = checked(key).unwrap();
            assert_eq!(path.as_ref(), key, "keys are used literally");
        }
    }

    #[test]
    fn keys_that_lead_elsewhere_are_refused() {
        let long = "a".repeat(2000);
        let plain = [
            "",
            "/etc/passwd",
            "../x",
            "a/../../x",
            "a//b",
            "a/",
            "./a",
            "a\0b",
            "a\nb",
            "..\\x",
            &long,
            "%2e%2E/x",
            "a%2F..%2fb",
            "..%5cb",
            "a\\..\\b",
            "\\\\server\\b",
            "a%2F%2Fb",
            "a%00",
        ];
        for key in plain {
            assert!(matches!(checked(key), Err(ObjectError::Key { .. })), "{key:?}");
        }
    }
}
