//! Programs that answer in JSON lines.

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running program with piped input and output. Killed on drop.
pub(crate) struct Dialogue {
    process: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Dialogue {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let questions = process.stdin.take().context("the program's input is not piped")?;
        let answers = process
            .stdout
            .take()
            .context("the program's output is not piped")?;
        Ok(Self {
            process,
            questions,
            answers: BufReader::new(answers),
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a line and waits for the answer.
    pub(crate) fn ask<T: DeserializeOwned>(&mut self, question: impl Display) -> Result<T> {
        writeln!(self.questions, "{question}")?;
        self.answer()
    }

    /// Reads the next line of output.
    pub(crate) fn answer<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("the program ended (see the output above)");
        }
        serde_json::from_str(&line).with_context(|| format!("unexpected answer: {line}"))
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        // Errors mean that the program has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
