//! `frostline admin state`, which backs up and restores the state of hosts. No host is contacted.

use super::console::confirm;
use crate::arguments::{HostStores, StateCommand};
use crate::output::{bytes, print_json};
use anyhow::{Context, Result, bail};
use frostline_server::{
    RestoreReport, StateLocation, StateReport, Stores, back_up_state, restore_state, verify_state,
};
use rustix::fs::Mode;
use serde::Serialize;

pub(super) async fn run(command: StateCommand, json: bool) -> Result<()> {
    // Only the owner may read backups, because they contain models and token hashes.
    rustix::process::umask(Mode::from_raw_mode(0o077));
    match command {
        StateCommand::Backup { state, to, stores } => {
            let report = back_up_state(&place(&state)?, &place(&to)?, &read_stores(&stores)?).await?;
            show(&report, &report, &format!("backed up {state} to {to}"), json)
        }
        StateCommand::Verify { state, stores } => {
            let report = verify_state(&place(&state)?, &read_stores(&stores)?).await?;
            show(&report, &report, &format!("verified {state}"), json)
        }
        StateCommand::Restore {
            backup,
            state,
            tokens,
            yes,
            stores,
        } => {
            let stores = read_stores(&stores)?;
            confirm(yes, &format!("Replace the contents of {state} by {backup}?"))?;
            let tokens = tokens.map(Into::into);
            let restored = restore_state(&place(&backup)?, &place(&state)?, tokens, &stores).await?;
            if !json {
                changes(&restored);
            }
            let done = format!("restored {state} from {backup}");
            show(&restored, &restored.state, &done, json)
        }
    }
}

fn place(text: &str) -> Result<StateLocation> {
    Ok(StateLocation::parse(text)?)
}

fn read_stores(stores: &HostStores) -> Result<Stores> {
    let Some(file) = &stores.config else {
        return Ok(Stores::default());
    };
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the configuration {}", file.display()))?;
    Stores::from_toml(&text).with_context(|| format!("in {}", file.display()))
}

/// Prints `all` as JSON if `json` is set. Otherwise, describes the contents of the state.
///
/// # Errors
/// Returns an error if versions are lost.
fn show(all: &impl Serialize, report: &StateReport, done: &str, json: bool) -> Result<()> {
    if json {
        print_json(all)?;
    } else {
        let documents = report.documents.iter();
        let documents: Vec<String> = documents.map(|(kind, count)| format!("{count} {kind}")).collect();
        let versions = report.versions;
        let size = bytes(report.bytes);
        let documents = documents.join(", ");
        say!(
            "{done}, as of change {}: {documents}; {versions} versions, {size}",
            report.change
        );
    }
    if report.lost.is_empty() {
        return Ok(());
    }
    if !json {
        for version in &report.lost {
            let how = if version.corrupt { "corrupt" } else { "missing" };
            say!(
                "{how}: {} of the {}, sha256:{}",
                version.name,
                version.kind,
                version.sha256
            );
        }
    }
    bail!(
        "{} versions are lost; upload these versions again or restore another backup",
        report.lost.len()
    );
}

fn changes(restored: &RestoreReport) {
    for document in &restored.dropped {
        say!("not in the backup, dropped: {document}");
    }
    for tenant in &restored.without_tokens {
        say!(
            "tenant {tenant} has no valid token; create a token with frostline admin tenant rotate {tenant}"
        );
    }
}
