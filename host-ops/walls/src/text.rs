//! Text of processes and guests, which may be forged.

/// Truncates `text` to `max` bytes and replaces control characters by spaces, so that the text cannot forge
/// lines or colors in a log or a terminal.
pub fn one_line(text: &str, max: usize) -> String {
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
