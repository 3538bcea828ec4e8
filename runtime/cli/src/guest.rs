//! `frostline guest` commands that upload, list, show and remove guests. Commands for authors are in
//! [`authoring`].

use crate::arguments::{GuestCommand, RemoteHost};
use crate::authoring;
use crate::guest_log;
use crate::output::{bytes, meant, print_json, print_list, print_result};
use anyhow::{Context, Result, bail};
use frostline_client::UploadKind;
use frostline_wire::GuestInfo;
use tokio_util::sync::CancellationToken;

pub(crate) async fn run(command: GuestCommand, json: bool, stop: &CancellationToken) -> Result<()> {
    match command {
        GuestCommand::Authoring(command) => authoring::run(command, json).await?,
        GuestCommand::Push { name, file, host } => {
            let component =
                std::fs::read(&file).with_context(|| format!("cannot read the guest {}", file.display()))?;
            let client = host.access().client()?;
            let pushed = client.push_guest(&name, component.into()).await?;
            let value = serde_json::json!({
                "name": name, "sha256": pushed.sha256, "bytes": pushed.bytes, "skipped": pushed.skipped,
                "seconds": pushed.seconds, "resumed_at": pushed.resumed_at,
            });
            let verb = match pushed.skipped {
                true => "is already uploaded",
                false => "uploaded",
            };
            let text = format!("{name}@sha256:{} {verb} ({})", pushed.sha256, bytes(pushed.bytes));
            print_result(json, &value, text)?;
        }
        GuestCommand::Logs { name, follow, hosts } => {
            guest_log::run(name, follow, &hosts, json, stop).await?
        }
        GuestCommand::List { host } => show(&host.access().client()?.guests().await?, json)?,
        GuestCommand::Remove { name, host } => {
            if !host.access().client()?.remove(UploadKind::Guest, &name).await? {
                bail!(absent(&name, &host).await?);
            }
            let value = serde_json::json!({ "name": name, "removed": true });
            print_result(json, &value, format!("{name} removed"))?;
        }
        GuestCommand::Show { name, host } => match host.access().client()?.guest(&name).await? {
            Some(guest) if json => print_json(&guest)?,
            Some(guest) => show(&[guest], false)?,
            None => bail!(absent(&name, &host).await?),
        },
    }
    Ok(())
}

async fn absent(name: &str, host: &RemoteHost) -> Result<String> {
    let guests = host.access().client()?.guests().await?;
    let known: Vec<String> = guests.into_iter().map(|guest| guest.name).collect();
    Ok(format!(
        "unknown guest '{name}' on {}{}; see `frostline guest list`",
        host.host,
        meant(name, &known)
    ))
}

fn show(guests: &[GuestInfo], json: bool) -> Result<()> {
    print_list(guests, json, "NAME|STATE|SIZE>|SHA-256", |guest| {
        [
            guest.name.clone(),
            if guest.disabled { "disabled" } else { "active" }.to_owned(),
            bytes(guest.bytes),
            guest.sha256.clone(),
        ]
    })
}
