/// The longest name a host takes.
const LONGEST_NAME: usize = 63;
/// Digits of the SHA-256 in a name: 48 bits tell a tenant's uploads apart; what is used is pinned by the whole.
const DIGITS: usize = 12;

/// A name for these contents that a host takes: `name`, with what a host's names may not have replaced, and the first digits of
/// the contents' SHA-256. Jobs with other contents under the same name do not disturb each other.
pub fn content_name(name: &str, sha256: &str) -> String {
    let plain = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '.' | '_' | '-') => c,
        _ => '-',
    };
    let mut plain: String = name.chars().take(LONGEST_NAME - 1 - DIGITS).map(plain).collect();
    if !plain.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        plain = format!("x{}", plain.chars().skip(1).collect::<String>());
    }
    format!("{plain}-{}", sha256.chars().take(DIGITS).collect::<String>())
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
