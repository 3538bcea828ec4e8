use crate::ObjectError;
use object_store::path::Path;

/// The longest key: S3's own limit, in bytes.
pub(crate) const LONGEST: usize = 1024;

/// The longest part of a refused key that is repeated in an error.
const SHOWN: usize = 120;

/// Checks a key that came from a client: relative, made of plain segments, nothing that leads anywhere else.
pub(crate) fn checked(key: &str) -> Result<Path, ObjectError> {
    let refused = |reason| ObjectError::Key {
        key: key.chars().take(SHOWN).collect(),
        reason,
    };
    if key.is_empty() {
        return Err(refused("it is empty"));
    }
    if key.len() > LONGEST {
        return Err(refused("it is longer than 1024 bytes"));
    }
    if key.chars().any(char::is_control) {
        return Err(refused("it holds control characters"));
    }
    if key.contains('\\') {
        return Err(refused("it holds a backslash"));
    }
    if holds_escape(key) {
        return Err(refused("it holds an escaped '.', '/', '\\' or control character"));
    }
    for segment in key.split('/') {
        match segment {
            "" => return Err(refused("it has an empty segment, or starts or ends with '/'")),
            "." | ".." => return Err(refused("it has a segment '.' or '..'")),
            _ => {}
        }
    }
    Path::parse(key).map_err(|_| refused("it is no path in an object store"))
}

/// Whether `key` holds a percent escape of a character that has a meaning in paths. Keys are taken literally and nothing here
/// decodes them, but a proxy or a gateway in front of a store might. Other percent signs (`50%.jpg`) are harmless.
fn holds_escape(key: &str) -> bool {
    key.split('%').skip(1).any(|rest| {
        let code = rest
            .get(..2)
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        code.is_some_and(|byte| byte.is_ascii_control() || matches!(byte, b'.' | b'/' | b'\\'))
    })
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
        ] {
            let path = checked(key).unwrap();
            assert_eq!(path.as_ref(), key, "a key is taken literally, never decoded");
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
            "a%2Fb",
            "a%5cb",
            "a%00",
        ];
        for key in plain {
            assert!(matches!(checked(key), Err(ObjectError::Key { .. })), "{key:?}");
        }
    }
}
