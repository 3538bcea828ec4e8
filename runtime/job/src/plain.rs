//! Escaping of text for terminals. Models, data and hosts can contain names and messages of other parties,
//! which must not control a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::mem;

/// Writer that escapes all text with [`plain`]. A UTF-8 character may be split over several writes.
#[derive(Debug)]
pub struct Plain<W: Write> {
    to: W,
    /// Start of a character whose other bytes have not been written yet, up to 3 bytes.
    incomplete: Vec<u8>,
}

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

impl<W: Write> Plain<W> {
    /// Creates a writer that passes the escaped text to `to`.
    pub fn new(to: W) -> Self {
        let incomplete = Vec::new();
        Self { to, incomplete }
    }

    /// Returns the writer for text that needs no escaping.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.to
    }
}

impl<W: Write> Write for Plain<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut text = mem::take(&mut self.incomplete);
        text.extend_from_slice(bytes);
        let last = text.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
        // Without a length of the error, more bytes could complete the character.
        let is_incomplete = str::from_utf8(last).is_err_and(|error| error.error_len().is_none());
        if is_incomplete {
            self.incomplete = last.to_vec();
            text.truncate(text.len() - self.incomplete.len());
        }
        self.to
            .write_all(plain(&String::from_utf8_lossy(&text)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl<W: Write> Drop for Plain<W> {
    fn drop(&mut self) {
        if !self.incomplete.is_empty() {
            // The reader may be gone, as for other output.
            let _ = self.to.write_all("\u{fffd}".as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text after a write for each of `pieces`.
    fn written(pieces: &[&[u8]]) -> String {
        let mut text = Vec::new();
        let mut to = Plain::new(&mut text);
        pieces.iter().for_each(|piece| to.write_all(piece).unwrap());
        drop(to);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_split_character_is_written_whole() {
        let text = "aä€\u{9b}\u{1f600}\u{202e}z";
        for end in 0..=text.len() {
            let (left, right) = text.as_bytes().split_at(end);
            assert_eq!(written(&[left, right]), plain(text), "{end}");
        }
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(written(&bytes), plain(text));
        // Invalid and unfinished bytes are replaced once, in their position.
        assert_eq!(written(&[b"a\xff", b"b\xe2\x82"]), "a\u{fffd}b\u{fffd}");
        assert_eq!(written(&[b"\xe2\x82", b"c"]), "\u{fffd}c");
    }

    #[test]
    fn nothing_steers_a_terminal() {
        let hostile = "a\u{1b}[2J\u{9b}31m\r\u{7}\u{7f}\u{202e}b\u{2066}\u{85}\n\tä€";
        let expected = "a\\u001b[2J\\u009b31m\\u000d\\u0007\\u007f\\u202eb\\u2066\\u0085\n\tä€";
        assert_eq!(plain(hostile), expected);
        assert_eq!(written(&[hostile.as_bytes()]), expected);
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
