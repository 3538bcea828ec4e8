//! `frostline admin`, which administers a host through its admin interface.

mod activity;
mod client;
mod console;
mod jobs;
mod quota;
mod state;
mod tenant;
mod uploads;
mod usage;

use crate::arguments::{AdminCommand, AdminFlags};
use anyhow::{Result, bail};
use client::{client, explained};
use tokio_util::sync::CancellationToken;

/// File name of the admin socket in a host's local directory.
pub(crate) const ADMIN_SOCKET: &str = "admin.sock";

/// Runs the command. A signal immediately ends requests and displays, but not a change of a state without a host.
pub(crate) async fn run(flags: AdminFlags, json: bool, stop: &CancellationToken) -> Result<()> {
    if let AdminCommand::State(command) = flags.command {
        return state::run(command, json).await;
    }
    tokio::select! {
        done = request(flags, json) => done,
        () = stop.cancelled() => bail!("interrupted"),
    }
}

async fn request(flags: AdminFlags, json: bool) -> Result<()> {
    let client = client(&flags)?;
    let remote = flags.host.is_some();
    let done = match flags.command {
        AdminCommand::Tenant(command) => tenant::run(&client, command, json).await,
        AdminCommand::Quota(command) => quota::run(&client, command, json).await,
        AdminCommand::Guest(command) => uploads::guest(&client, command, json).await,
        AdminCommand::Model(command) => uploads::model(&client, command, json).await,
        AdminCommand::Job(command) => jobs::run(&client, command, json).await,
        AdminCommand::State(_) => Ok(()),
        AdminCommand::Top { once, jobs: true } => jobs::top(&client, once, json).await,
        AdminCommand::Top { once, jobs: false } => activity::top(&client, once, json).await,
        AdminCommand::Drain { name, yes } => activity::drain(&client, name.as_deref(), yes, json).await,
        AdminCommand::Undrain { name } => activity::undrain(&client, name.as_deref(), json).await,
        AdminCommand::Usage(command) => usage::run(&client, command, json).await,
        AdminCommand::Audit { tenant, limit } => activity::audit(&client, tenant, limit, json).await,
    };
    done.map_err(|error| explained(error, remote))
}
