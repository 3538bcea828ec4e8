//! Escaping of text for terminals. Models, data and hosts can contain names and messages of other parties,
//! which must not control a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Writer that escapes all text with [`plain`].
#[derive(Debug)]
pub struct Plain<W>(pub W);

/// Escapes characters that control a terminal or change the reading direction. Line feeds and tabs are kept.
/// JSON documents stay equivalent, because the escapes are valid in JSON strings.
pub fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, |character| {
        steers(character) && !matches!(character, '\n' | '\t')
    })
}

/// Escapes like [`plain`], including line feeds and tabs, for text within a line.
pub fn plain_line(text: &str) -> Cow<'_, str> {
    escaped(text, steers)
}

fn escaped(text: &str, escape: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&escape) {
        return Cow::Borrowed(text);
    }
    let mut written = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if escape(character) {
            // Writing to a string cannot fail.
            let _ = write!(written, "\\u{:04x}", u32::from(character));
        } else {
            written.push(character);
        }
    }
    Cow::Owned(written)
}

/// Returns true for control characters, line separators, and characters that override the direction of text
/// (Unicode UAX 9 and UTS 55).
fn steers(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

impl<W: Write> Write for Plain<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .write_all(plain(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_a_terminal() {
        let hostile = "a\u{1b}[2J\u{9b}31m\r\u{7}\u{7f}\u{202e}b\u{2066}\u{85}\n\tä€";
        let expected = "a\\u001b[2J\\u009b31m\\u000d\\u0007\\u007f\\u202eb\\u2066\\u0085\n\tä€";
        assert_eq!(plain(hostile), expected);
        let mut written = Plain(Vec::new());
        write!(written, "{hostile}").unwrap();
        assert_eq!(String::from_utf8(written.0).unwrap(), expected);
        assert_eq!(plain_line("a\nerror: b"), "a\\u000aerror: b");
    }

    #[test]
    fn json_says_the_same_afterwards() {
        let value = serde_json::json!({ "name": "a\u{1b}\u{9b}\u{7f}\u{202e}\n" });
        let text = value.to_string();
        assert_ne!(plain(&text), text);
        let again: serde_json::Value = serde_json::from_str(&plain(&text)).unwrap();
        assert_eq!(again, value);
    }
}
