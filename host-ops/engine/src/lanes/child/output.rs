//! Text that a lane's process writes to standard output and error, in the host's log.

use frostline_walls::one_line;
use std::time::{Duration, Instant};

/// Maximum length of a line in bytes. Panic messages and their locations are shorter.
const LINE_BYTES: usize = 512;

/// Number of lines that are logged without a pause, which is enough for a panic with a backtrace.
const BURST: u32 = 32;

/// Time after which another line may be logged. A process that writes continuously adds up to 44 MB to the
/// host's log per day.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// Splits the output of a process into lines of bounded length and rate.
pub(super) struct LogLimiter {
    line: Vec<u8>,
    /// Number of lines that may be logged now.
    left: u32,
    /// Time at which the last line was added to `left`.
    refilled: Instant,
    /// Number of lines that were not logged since the last logged line.
    dropped: u64,
}

/// A line for the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutputLine {
    /// Text without control characters.
    pub(super) text: String,
    /// Number of lines dropped before this one.
    pub(super) dropped: u64,
}

impl LogLimiter {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            line: Vec::new(),
            left: BURST,
            refilled: now,
            dropped: 0,
        }
    }

    /// Adds `bytes` and returns the complete lines that may be logged. Truncates long lines.
    pub(super) fn push(&mut self, bytes: &[u8], now: Instant) -> Vec<OutputLine> {
        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let free = LINE_BYTES.saturating_sub(self.line.len());
            self.line.extend(piece.iter().take(free));
            if piece.ends_with(b"\n") {
                lines.extend(self.finish(now));
            }
        }
        lines
    }

    /// Ends the current line and returns it if it may be logged.
    pub(super) fn finish(&mut self, now: Instant) -> Option<OutputLine> {
        let text = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
        let text = text.trim_end();
        if text.is_empty() {
            return None;
        }
        self.refill(now);
        if self.left == 0 {
            self.dropped += 1;
            return None;
        }
        self.left -= 1;
        Some(OutputLine {
            text: one_line(text, LINE_BYTES),
            dropped: std::mem::take(&mut self.dropped),
        })
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.refilled).as_secs() / LINE_INTERVAL.as_secs();
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(passed).min(BURST);
        self.refilled += LINE_INTERVAL.saturating_mul(passed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[OutputLine]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn a_line_is_logged_when_it_is_complete_and_cannot_forge_another() {
        let now = Instant::now();
        let mut output = LogLimiter::new(now);
        assert_eq!(output.push(b"one\r\n\n\x1b[31mtw", now).len(), 1);
        assert_eq!(
            texts(&output.push(b"o\r2026 ERROR\nrest", now)),
            [" [31mtwo 2026 ERROR"]
        );
        assert_eq!(output.finish(now).unwrap().text, "rest");
        assert_eq!(output.finish(now), None);
    }

    #[test]
    fn lines_are_bounded_in_length_and_rate() {
        let start = Instant::now();
        let mut output = LogLimiter::new(start);
        let flood = [vec![b'x'; 4 * LINE_BYTES], b"\n".to_vec()].concat().repeat(100);
        let burst = output.push(&flood, start);
        assert_eq!(burst.len(), BURST as usize);
        assert!(
            burst
                .iter()
                .all(|line| line.text.len() == LINE_BYTES && line.dropped == 0)
        );
        assert!(output.line.capacity() <= 4 * LINE_BYTES);
        let later = output.push(b"a\nb\nc\n", start + 2 * LINE_INTERVAL);
        assert_eq!(texts(&later), ["a", "b"]);
        let dropped: Vec<u64> = later.iter().map(|line| line.dropped).collect();
        assert_eq!(dropped, [100 - u64::from(BURST), 0]);
        let refilled = output.push(&flood, start + 1000 * LINE_INTERVAL);
        assert_eq!(refilled.len(), BURST as usize, "unused time does not accumulate");
    }
}
