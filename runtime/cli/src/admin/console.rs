//! Confirmations and results on the terminal.

use crate::hints::{Hinted, NextStep};
use crate::output::{print_result, stderr};
use anyhow::{Result, anyhow, bail};
use std::io::{IsTerminal, Write};

/// Asks for confirmation before a destructive action, unless `yes` is set.
///
/// # Errors
/// Returns an error if the answer is not yes, or if standard input is not a terminal.
pub(super) fn confirm(yes: bool, question: &str) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        let error = anyhow!("{question} There is no terminal for the answer");
        return Err(Hinted::wrap(error, vec![NextStep::set("yes", true)]));
    }
    write!(stderr(), "{question} [y/N] ")?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => bail!("nothing was done"),
    }
}

/// Reports the action `what` on `name`.
pub(super) fn done(name: &str, what: &str, json: bool) -> Result<()> {
    let value = serde_json::json!({ "name": name, "done": what });
    print_result(json, &value, format!("{name}: {what}"))
}
