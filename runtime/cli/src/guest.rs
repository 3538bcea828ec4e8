//! `frostline guest` commands that upload, list, show and remove guests. Commands for authors are in
//! [`authoring`].

use crate::arguments::{Guest, RemoteHost};
use crate::authoring;
use crate::guest_log;
use crate::output::{bytes, meant, print_each, print_json, print_table};
use anyhow::{Context, Result, bail};
use frostline_wire::GuestInfo;
use tokio_util::sync::CancellationToken;

pub(crate) async fn run(command: Guest, json: bool, stop: &CancellationToken) -> Result<()> {
    match command {
        Guest::Authoring(command) => authoring::run(command, json).await?,
        Guest::Push { name, file, host } => {
            let component =
                std::fs::read(&file).with_context(|| format!("cannot read the guest {}", file.display()))?;
            let pushed = host
                .access()
                .client()?
                .push_guest(&name, component.into())
                .await?;
            if json {
                print_json(&serde_json::json!({
                    "name": name, "sha256": pushed.sha256, "bytes": pushed.bytes, "skipped": pushed.skipped,
                    "seconds": pushed.seconds, "resumed_at": pushed.resumed_at,
                }))?;
            } else {
                let verb = if pushed.skipped {
                    "is already uploaded"
                } else {
                    "uploaded"
                };
                say!("{name}@sha256:{} {verb} ({})", pushed.sha256, bytes(pushed.bytes));
            }
        }
        Guest::Logs { name, follow, hosts } => guest_log::run(name, follow, &hosts, json, stop).await?,
        Guest::List { host } => show(&host.access().client()?.guests().await?, json)?,
        Guest::Remove { name, host } => {
            if !host.access().client()?.remove_guest(&name).await? {
                bail!(absent(&name, &host).await?);
            }
            if json {
                print_json(&serde_json::json!({ "name": name, "removed": true }))?;
            } else {
                say!("{name} removed");
            }
        }
        Guest::Show { name, host } => match host.access().client()?.guest(&name).await? {
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
    if json {
        return Ok(print_each(guests)?);
    }
    print_table(
        &["NAME", "STATE", "SIZE", "SHA-256"],
        &[false, false, true, false],
        &guests
            .iter()
            .map(|guest| {
                vec![
                    guest.name.clone(),
                    if guest.disabled { "disabled" } else { "active" }.to_owned(),
                    bytes(guest.bytes),
                    guest.sha256.clone(),
                ]
            })
            .collect::<Vec<_>>(),
    )?;
    Ok(())
}
