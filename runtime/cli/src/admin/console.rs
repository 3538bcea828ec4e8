//! Confirmations and results on the terminal.

use crate::output::{print_json, stderr};
use anyhow::{Result, bail};
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
        bail!("{question} Use --yes to confirm without a terminal");
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
    if json {
        return Ok(print_json(&serde_json::json!({ "name": name, "done": what }))?);
    }
    say!("{name}: {what}");
    Ok(())
}
