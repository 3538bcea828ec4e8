//! Running a test runner so that something can be said before its last words.

use crate::workspace::show;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, IsTerminal, Read, Write, stderr, stdout};
use std::process::{Command, Stdio};

/// A test runner, and where it says how many tests ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runner {
    /// On standard error: `Summary [   3.2s] 12 tests run: 12 passed, 3 skipped`.
    Nextest,
    /// On standard output, for each program of tests: `test result: ok. 12 passed; 0 failed; ..`.
    Cargo,
}

impl Runner {
    /// Tests that ran, in a line that says so.
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

    /// Runs `command` to its end, its output shown, and `notice` before the words that begin with its (last) summary. Returns how many tests ran.
    /// Few tests that fail are tried once more: nextest does that by itself, as `.config/nextest.toml` says.
    pub(crate) fn run(self, command: &mut Command, notice: Option<&str>) -> Result<usize> {
        let ran = self.run_once(command, notice)?;
        if ran.passed {
            return Ok(ran.count);
        }
        if self == Self::Cargo && (1..=MOST_AGAIN).contains(&ran.failed.len()) {
            let names = ran.failed.join(" ");
            eprintln!("trying once more what failed: {names}");
            if self.run_once(&mut only(command, &ran.failed), None)?.passed {
                eprintln!("flaky, passed the second time: {names}");
                return Ok(ran.count);
            }
        }
        bail!("`{}` failed", show(command));
    }

    fn run_once(self, command: &mut Command, notice: Option<&str>) -> Result<Ran> {
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
        let mut ran = match (child.stderr.take(), child.stdout.take()) {
            (Some(words), _) => self.relay(words, &mut stderr(), notice)?,
            (_, Some(words)) => self.relay(words, &mut stdout(), notice)?,
            (None, None) => Ran::default(),
        };
        ran.passed = child.wait()?.success();
        Ok(ran)
    }

    /// Passes lines on as they come; those from a summary on wait for what follows.
    fn relay(self, from: impl Read, to: &mut impl Write, notice: Option<&str>) -> Result<Ran> {
        let (mut ran, mut held) = (Ran::default(), String::new());
        let mut lines = BufReader::new(from);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line)? > 0 {
            let text = String::from_utf8_lossy(&line).into_owned();
            line.clear();
            let count = self.count(&text);
            ran.count += count.unwrap_or(0);
            ran.failed.extend(failed_test(&text).map(str::to_owned));
            if count.is_some() || text.starts_with("running ") {
                to.write_all(std::mem::take(&mut held).as_bytes())?;
            }
            if count.is_some() || !held.is_empty() {
                held.push_str(&text);
            } else {
                to.write_all(text.as_bytes())?;
            }
        }
        if let Some(notice) = notice {
            writeln!(to, "{notice}")?;
        }
        to.write_all(held.as_bytes())?;
        Ok(ran)
    }
}

/// Failed tests that are tried once more: with many, it is no accident.
const MOST_AGAIN: usize = 5;

/// What a run came to.
#[derive(Debug, Default)]
struct Ran {
    /// Tests that ran.
    count: usize,
    /// Those that cargo's own runner says failed.
    failed: Vec<String>,
    passed: bool,
}

/// The test whose output follows, which cargo's own runner shows of those that fail.
fn failed_test(line: &str) -> Option<&str> {
    line.trim_end()
        .strip_prefix("---- ")?
        .strip_suffix(" stdout ----")
}

/// `command`, for these tests alone.
fn only(command: &Command, tests: &[String]) -> Command {
    let mut again = Command::new(command.get_program());
    again.args([
        "test",
        "--workspace",
        "--no-fail-fast",
        "--tests",
        "--",
        "--exact",
    ]);
    again.args(tests);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => again.env(name, value),
            None => again.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        again.current_dir(folder);
    }
    again
}

/// The text without what colours it.
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
        let ran = runner
            .relay(words.as_bytes(), &mut shown, Some("NOTICE"))
            .unwrap();
        (ran.count, String::from_utf8(shown).unwrap())
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
    fn tests_that_failed_are_named() {
        let words =
            "test a::b ... FAILED\n\nfailures:\n\n---- a::b stdout ----\nit broke\n\nfailures:\n    a::b\n";
        let ran = Runner::Cargo
            .relay(words.as_bytes(), &mut Vec::new(), None)
            .unwrap();
        assert_eq!(ran.failed, ["a::b"]);
    }

    #[test]
    fn colours_do_not_hide_the_count() {
        let words = "\u{1b}[32;1m     Summary\u{1b}[0m [   0.005s] \u{1b}[1m1\u{1b}[0m test run: 1 passed\n";
        assert_eq!(relayed(Runner::Nextest, words).0, 1);
    }

    #[test]
    fn of_several_summaries_the_last_stays_last() {
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
    fn without_a_summary_the_notice_comes_all_the_same() {
        assert_eq!(
            relayed(Runner::Cargo, "error: it does not compile\n"),
            (0, "error: it does not compile\nNOTICE\n".to_owned())
        );
    }
}
