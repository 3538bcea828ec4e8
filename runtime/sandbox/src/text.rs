//! Sanitises texts from guests for messages, tables and logs.

use frostline_tensor::OpError;

/// The longest text of a failure, in bytes, on its way to a guest or back: one per sample travels to the trainer.
pub(crate) const MESSAGE: usize = 1024;

/// The longest name a guest may look up: object stores take keys of 1,024 bytes.
pub(crate) const NAME: usize = 1024;

/// Bounds a name, since names go into tables and messages.
pub(crate) fn check_name(name: &str) -> Result<(), OpError> {
    if name.len() <= NAME {
        return Ok(());
    }
    Err(OpError::invalid(format!(
        "a name has {} bytes, the limit is {NAME}",
        name.len()
    )))
}

/// At most `max` bytes of a text with control characters replaced, so that a guest cannot forge lines or colors.
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
