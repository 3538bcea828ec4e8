//! Sanitizes texts of guests for messages, tables and logs.

use frostline_tensor::OpError;

/// Maximum length of error messages in bytes, both from and to guests. Bounded because the trainer receives a
/// message for each failed sample.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1024;

/// Maximum length of a name in bytes. Object stores accept keys of up to 1,024 bytes.
pub(crate) const MAX_NAME_BYTES: usize = 1024;

/// Checks the length of a name, since names appear in tables and messages.
pub(crate) fn check_name(name: &str) -> Result<(), OpError> {
    if name.len() <= MAX_NAME_BYTES {
        return Ok(());
    }
    Err(OpError::invalid(format!(
        "a name has {} bytes, the limit is {MAX_NAME_BYTES}",
        name.len()
    )))
}

/// Truncates `text` to `max` bytes and replaces control characters. This prevents guests from forging lines
/// or colors.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    let mut line = String::new();
    for character in text.chars() {
        let plain = if character.is_control() { ' ' } else { character };
        if line.len() + plain.len_utf8() > max {
            break;
        }
        line.push(plain);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn a_line_stays_a_line() {
        assert_eq!(one_line("a\nb\u{1b}[31mc", 100), "a b [31mc");
        assert_eq!(one_line("äöü", 5), "äö");
    }
}
