//! What the person at the terminal is asked and told.

use crate::output::{print_json, stderr};
use anyhow::{Result, bail};
use std::io::{IsTerminal, Write};

/// Asks before something is done that cannot be undone, unless `yes`. Without a terminal there is nobody to ask.
pub(super) fn confirm(yes: bool, question: &str) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        bail!("{question} Say so with --yes, since there is no terminal to ask on");
    }
    write!(stderr(), "{question} [y/N] ")?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => bail!("nothing was done"),
    }
}

/// Says what was done to `name`.
pub(super) fn done(name: &str, what: &str, json: bool) -> Result<()> {
    if json {
        return Ok(print_json(&serde_json::json!({ "name": name, "done": what }))?);
    }
    say!("{name}: {what}");
    Ok(())
}
