//! `frostline admin`: look after a host.

mod activity;
mod client;
mod publish;
mod quota;
mod tenant;
mod uploads;

use crate::arguments::{Admin, AdminCommand};
use crate::output::print_json;
use anyhow::{Result, bail};
use client::AdminClient;
use std::io::{IsTerminal, Write};

/// The socket's file in a host's local directory.
pub(crate) const ADMIN_SOCKET: &str = "admin.sock";

pub(crate) async fn run(flags: Admin, json: bool) -> Result<()> {
    let client = match (&flags.host, &flags.token_file) {
        (Some(url), Some(token_file)) => AdminClient::remote(url, token_file, flags.ca.as_deref())?,
        _ => AdminClient::local(flags.socket),
    };
    match flags.command {
        AdminCommand::Tenant(command) => tenant::run(&client, command, json).await,
        AdminCommand::Quota(command) => quota::run(&client, command, json).await,
        AdminCommand::Guest(command) => uploads::guest(&client, command, json).await,
        AdminCommand::Model(command) => uploads::model(&client, command, json).await,
        AdminCommand::Top { once } => activity::top(&client, once, json).await,
        AdminCommand::Drain { yes } => activity::drain(&client, yes, json).await,
        AdminCommand::Audit { tenant, limit } => activity::audit(&client, tenant, limit, json).await,
    }
}

/// Asks before something is done that cannot be undone, unless `yes`. Without a terminal there is nobody to ask.
fn confirm(yes: bool, question: &str) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        bail!("{question} Say so with --yes, since there is no terminal to ask on");
    }
    eprint!("{question} [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => bail!("nothing was done"),
    }
}

fn done(name: &str, what: &str, json: bool) -> Result<()> {
    if json {
        return Ok(print_json(&serde_json::json!({ "name": name, "done": what }))?);
    }
    println!("{name}: {what}");
    Ok(())
}
