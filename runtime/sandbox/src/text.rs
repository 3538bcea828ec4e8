//! Texts that come from guests, on their way into messages, tables and logs.

use frostline_tensor::OpError;

/// The longest text of a failure, in bytes, on its way to a guest or back: one per sample travels to the trainer.
pub(crate) const MESSAGE: usize = 1024;

/// The most bytes of a name that is looked up for a guest: object stores take keys of 1,024 bytes.
pub(crate) const NAME: usize = 1024;

/// Names go into tables and messages, some of them a million times.
pub(crate) fn check_name(name: &str) -> Result<(), OpError> {
    if name.len() <= NAME {
        return Ok(());
    }
    Err(OpError::invalid(format!(
        "a name of {} bytes; names have at most {NAME}",
        name.len()
    )))
}

/// At most `most` bytes of a text, control characters replaced: a guest forges no second line, no colours.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    for character in text.chars() {
        let plain = if character.is_control() { ' ' } else { character };
        if line.len() + plain.len_utf8() > most {
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
