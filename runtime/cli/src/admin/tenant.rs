//! `frostline admin tenant`, which manages tenants, their data roots and their tokens.

use super::console::confirm;
use crate::arguments::{TenantCommand, TenantName};
use crate::host::data_url;
use crate::output::{print_json, print_list, print_table, stdout};
use anyhow::Result;
use frostline_client::AdminClient;
use frostline_job::utc;
use frostline_wire::{GivenToken, NewTenant, NewToken, Removal, Revoked, TenantChange, TenantInfo};
use std::io::Write as _;

pub(super) async fn run(client: &AdminClient, command: TenantCommand, json: bool) -> Result<()> {
    match command {
        TenantCommand::Add {
            name,
            data,
            unchecked,
            expires,
        } => {
            let new = NewTenant {
                name,
                data: urls(&data)?,
                token_seconds: expires,
                unchecked,
            };
            show_token(&client.post("/v1/tenants", &new).await?, json)
        }
        TenantCommand::List => list(client, json).await,
        TenantCommand::Show(TenantName { name }) => show(&client.get(&path(&name), &[]).await?, json),
        TenantCommand::Set {
            name,
            data,
            unchecked,
        } => {
            let change = TenantChange {
                data: Some(urls(&data)?),
                unchecked,
                ..TenantChange::default()
            };
            apply(client, &name, &change, json).await
        }
        TenantCommand::Rotate {
            name,
            expires,
            others,
        } => {
            let new = NewToken {
                token_seconds: expires,
                others_seconds: Some(others),
            };
            let path = format!("{}/tokens", path(&name));
            show_token(&client.post(&path, &new).await?, json)
        }
        TenantCommand::Revoke { name, id } => {
            let path = format!("{}/tokens/{id}", path(&name));
            let revoked = client.delete_for(&path, &[]).await?;
            show_revoked(&name, &revoked, json)
        }
        TenantCommand::Disable(TenantName { name }) => disable(client, &name, true, json).await,
        TenantCommand::Enable(TenantName { name }) => disable(client, &name, false, json).await,
        TenantCommand::Remove { name, erase, yes } => remove(client, &name, erase, yes, json).await,
        TenantCommand::Restore(TenantName { name }) => {
            let change = TenantChange {
                removed: Some(false),
                ..TenantChange::default()
            };
            apply(client, &name, &change, json).await
        }
    }
}

async fn apply(client: &AdminClient, name: &str, change: &TenantChange, json: bool) -> Result<()> {
    show(&client.patch(&path(name), change).await?, json)
}

async fn list(client: &AdminClient, json: bool) -> Result<()> {
    let tenants: Vec<TenantInfo> = client.get("/v1/tenants", &[]).await?;
    print_list(&tenants, json, "TENANT|STATE|TOKENS>|DATA", |tenant| {
        [
            tenant.name.clone(),
            status(tenant).to_owned(),
            tenant.tokens.len().to_string(),
            tenant.data.join(" "),
        ]
    })
}

async fn disable(client: &AdminClient, name: &str, disabled: bool, json: bool) -> Result<()> {
    let change = TenantChange {
        disabled: Some(disabled),
        ..TenantChange::default()
    };
    apply(client, name, &change, json).await
}

async fn remove(client: &AdminClient, name: &str, erase: bool, yes: bool, json: bool) -> Result<()> {
    let verb = if erase { "Delete" } else { "Remove" };
    confirm(
        yes,
        &format!("{verb} the tenant {name} with its guests, models and tokens?"),
    )?;
    let erase = if erase { "true" } else { "false" };
    let removal = client.delete_for(&path(name), &[("erase", erase)]).await?;
    show_removal(name, &removal, json)
}

fn path(name: &str) -> String {
    format!("/v1/tenants/{name}")
}

/// Converts paths to absolute paths, because the host may use another working directory.
fn urls(data: &[String]) -> Result<Vec<String>> {
    data.iter().map(|data| data_url(data)).collect()
}

fn show_token(given: &GivenToken, json: bool) -> Result<()> {
    if json {
        return Ok(print_json(given)?);
    }
    tell!("the token of {} (shown only once):", given.tenant.name);
    // A write error must be reported, because the token would be lost.
    Ok(writeln!(stdout(), "{}", given.token)?)
}

fn show_revoked(name: &str, revoked: &Revoked, json: bool) -> Result<()> {
    if json {
        return Ok(print_json(revoked)?);
    }
    say!("{name}: token revoked");
    if let Some(reason) = &revoked.pending {
        tell!("only the answering host refuses the token now; it retries to write the state: {reason}");
    }
    if !revoked.unaware.is_empty() {
        let unaware = revoked.unaware.join(", ");
        tell!("these hosts may still accept the token until they can read the state: {unaware}");
    }
    Ok(())
}

fn show_removal(name: &str, removal: &Removal, json: bool) -> Result<()> {
    if json {
        return Ok(print_json(removal)?);
    }
    match removal.kept_until {
        None => say!("{name}: deleted"),
        Some(until) => say!(
            "{name}: removed; to restore it, run `frostline admin tenant restore {name}` before {} UTC",
            utc(until)
        ),
    }
    Ok(())
}

/// Returns whether requests of a tenant are accepted.
fn status(tenant: &TenantInfo) -> &'static str {
    match (tenant.kept_until, tenant.disabled) {
        (Some(_), _) => "removed",
        (None, true) => "disabled",
        (None, false) => "active",
    }
}

fn show(tenant: &TenantInfo, json: bool) -> Result<()> {
    if json {
        return Ok(print_json(tenant)?);
    }
    match (status(tenant), tenant.kept_until) {
        ("active", _) => say!("{}", tenant.name),
        (status, None) => say!("{} ({status})", tenant.name),
        (status, Some(until)) => say!("{} ({status}, kept until {} UTC)", tenant.name, utc(until)),
    }
    for root in &tenant.data {
        say!("  reads {root}");
    }
    let rows = tenant
        .tokens
        .iter()
        .map(|token| [token.id.clone(), utc(token.created_at), expiry(token.expires_at)]);
    print_table("TOKEN|CREATED (UTC)|EXPIRES (UTC)", rows)
}

fn expiry(at: Option<u64>) -> String {
    at.map_or_else(|| "never".to_owned(), utc)
}
