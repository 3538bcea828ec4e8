/// Maximum length of a name on a host.
const LONGEST_NAME: usize = 63;
/// Hex digits of the SHA-256 in a name. 48 bits distinguish a tenant's uploads; references carry the complete
/// hash.
const DIGITS: usize = 12;

/// Returns a valid host-side name for these contents: `name` with invalid characters replaced, followed by
/// the first digits of the SHA-256. Jobs that use the same name for different contents do not interfere.
pub fn content_name(name: &str, sha256: &str) -> String {
    let mut plain: String = name
        .chars()
        .take(LONGEST_NAME - 1 - DIGITS)
        .map(plain_char)
        .collect();
    if !plain.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        plain = format!("x{}", plain.chars().skip(1).collect::<String>());
    }
    format!("{plain}-{}", sha256.chars().take(DIGITS).collect::<String>())
}

/// Replaces a character that is invalid in the name of an upload.
fn plain_char(c: char) -> char {
    match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '.' | '_' | '-') => c,
        _ => '-',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_such_as_hosts_take() {
        let sha = "0123456789abcdef";
        assert_eq!(content_name("SqueezeNet 1.1", sha), "squeezenet-1.1-0123456789ab");
        assert_eq!(content_name("", sha), "x-0123456789ab");
        assert_eq!(content_name("_été", sha), "x-t--0123456789ab");
        assert_eq!(content_name(&"a".repeat(200), sha).len(), LONGEST_NAME);
    }
}
