//! Runs a test runner and prints a notice before its summary.

use crate::workspace::show;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, IsTerminal, Read, Write, stderr, stdout};
use std::process::{Command, Stdio};

/// Test runner, which determines where and how results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runner {
    /// Prints `Summary [   3.2s] 12 tests run: 12 passed, 3 skipped` to standard error.
    Nextest,
    /// Prints `test result: ok. 12 passed; 0 failed; ..` to standard output for each test program.
    Cargo,
}

impl Runner {
    /// Returns the number of executed tests if `line` is a summary.
    fn count(self, line: &str) -> Option<usize> {
        let number = |text: &str| text.split_whitespace().next_back()?.parse().ok();
        match self {
            Self::Nextest => {
                let (before, _) = line
                    .split_once(" tests run:")
                    .or_else(|| line.split_once(" test run:"))?;
                number(&plain(before))
            }
            Self::Cargo => {
                let (passed, rest) = line.strip_prefix("test result:")?.split_once(" passed")?;
                let (failed, _) = rest.split_once(" failed")?;
                Some(number(passed)? + number(failed.trim_start_matches(';'))?)
            }
        }
    }

    /// Runs `command`, relays the output, and prints `notice` before the last summary. Returns the number of
    /// executed tests.
    pub(crate) fn run(self, command: &mut Command, notice: Option<&str>) -> Result<usize> {
        let shown = show(command);
        match self {
            Self::Nextest => command.stderr(Stdio::piped()),
            Self::Cargo => command.stdout(Stdio::piped()),
        };
        if stderr().is_terminal() {
            command.env("CARGO_TERM_COLOR", "always");
        }
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start `{shown}`"))?;
        let count = match (child.stderr.take(), child.stdout.take()) {
            (Some(lines), _) => self.relay(lines, &mut stderr(), notice)?,
            (_, Some(lines)) => self.relay(lines, &mut stdout(), notice)?,
            (None, None) => 0,
        };
        if !child.wait()?.success() {
            bail!("`{shown}` failed");
        }
        Ok(count)
    }

    /// Relays lines immediately, but holds back lines from a summary until the next program starts or the
    /// output ends. Returns the number of executed tests.
    fn relay(self, from: impl Read, to: &mut impl Write, notice: Option<&str>) -> Result<usize> {
        let mut total = 0;
        let mut pending = String::new();
        let mut lines = BufReader::new(from);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line)? > 0 {
            let text = String::from_utf8_lossy(&line).into_owned();
            line.clear();
            let count = self.count(&text);
            total += count.unwrap_or(0);
            if count.is_some() || text.starts_with("running ") {
                to.write_all(std::mem::take(&mut pending).as_bytes())?;
            }
            if count.is_some() || !pending.is_empty() {
                pending.push_str(&text);
            } else {
                to.write_all(text.as_bytes())?;
            }
        }
        if let Some(notice) = notice {
            writeln!(to, "{notice}")?;
        }
        to.write_all(pending.as_bytes())?;
        Ok(total)
    }
}

/// Removes ANSI escape sequences.
fn plain(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once('m').map_or("", |(_, rest)| rest));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relayed(runner: Runner, words: &str) -> (usize, String) {
        let mut shown = Vec::new();
        let count = runner
            .relay(words.as_bytes(), &mut shown, Some("NOTICE"))
            .unwrap();
        (count, String::from_utf8(shown).unwrap())
    }

    #[test]
    fn the_notice_comes_before_the_summary_and_what_follows_it() {
        let words = "PASS a\n     Summary [   0.005s] 12 tests run: 11 passed, 3 skipped\nFAIL b\n";
        let (count, shown) = relayed(Runner::Nextest, words);
        assert_eq!(count, 12);
        assert_eq!(
            shown,
            "PASS a\nNOTICE\n     Summary [   0.005s] 12 tests run: 11 passed, 3 skipped\nFAIL b\n"
        );
    }

    #[test]
    fn colors_do_not_hide_the_count() {
        let words = "\u{1b}[32;1m     Summary\u{1b}[0m [   0.005s] \u{1b}[1m1\u{1b}[0m test run: 1 passed\n";
        assert_eq!(relayed(Runner::Nextest, words).0, 1);
    }

    #[test]
    fn the_notice_precedes_the_last_summary() {
        let one = "running 1 test\ntest result: ok. 1 passed; 0 failed; 2 ignored\n\n";
        let two = "running 2 tests\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n\n";
        let (count, shown) = relayed(Runner::Cargo, &format!("{one}{two}"));
        assert_eq!(count, 3);
        assert_eq!(
            shown,
            format!(
                "{one}running 2 tests\nNOTICE\n{}",
                &two["running 2 tests\n".len()..]
            )
        );
    }

    #[test]
    fn the_notice_is_printed_without_a_summary() {
        assert_eq!(
            relayed(Runner::Cargo, "error: cannot compile\n"),
            (0, "error: cannot compile\nNOTICE\n".to_owned())
        );
    }
}
