//! `frostline admin guest` and `frostline admin model`, which manage the uploads of tenants and shared
//! models.

use super::console::{confirm, done};
use crate::arguments::{GuestAdmin, GuestName, InterfaceFlags, ModelAdmin, OfTenant, OwnUpload, UploadName};
use crate::output::{bytes, print_json, print_list, print_table};
use crate::train::read_model;
use anyhow::{Context, Result};
use frostline_client::AdminClient;
use frostline_job::utc;
use frostline_wire::{GuestChange, UploadInfo, repr_digest};
use std::path::Path;

pub(super) async fn guest(client: &AdminClient, command: GuestAdmin, json: bool) -> Result<()> {
    match command {
        GuestAdmin::List(OfTenant { tenant }) => list(client, "guest", tenant, json).await,
        GuestAdmin::Show(GuestName { guest }) => show(&client.get(&own("guest", &guest), &[]).await?, json),
        GuestAdmin::Disable(GuestName { guest }) => disable(client, &guest, true, json).await,
        GuestAdmin::Enable(GuestName { guest }) => disable(client, &guest, false, json).await,
        GuestAdmin::Remove {
            guest: GuestName { guest },
            yes,
        } => {
            confirm(yes, &format!("Remove the guest {guest} including all versions?"))?;
            client.delete(&own("guest", &guest)).await?;
            done(&guest.to_string(), "removed", json)
        }
    }
}

pub(super) async fn model(client: &AdminClient, command: ModelAdmin, json: bool) -> Result<()> {
    match command {
        ModelAdmin::Push {
            name,
            file,
            interface,
        } => show(&push(client, &name, &file, &interface).await?, json),
        ModelAdmin::List(OfTenant { tenant }) => list(client, "model", tenant, json).await,
        ModelAdmin::Remove { model, yes } => {
            let (name, path, whose) = match &model {
                UploadName::Own(model) => (model.to_string(), own("model", model), ""),
                UploadName::Shared(name) => (
                    name.clone(),
                    format!("/v1/models/{name}"),
                    " (shared by all tenants)",
                ),
            };
            confirm(
                yes,
                &format!("Remove the model {name}{whose} including all versions?"),
            )?;
            client.delete(&path).await?;
            done(&name, "removed", json)
        }
    }
}

async fn disable(client: &AdminClient, guest: &OwnUpload, disabled: bool, json: bool) -> Result<()> {
    let change = GuestChange { disabled };
    show(&client.patch(&own("guest", guest), &change).await?, json)
}

fn own(what: &str, OwnUpload { tenant, name }: &OwnUpload) -> String {
    format!("/v1/tenants/{tenant}/{what}s/{name}")
}

async fn list(client: &AdminClient, what: &str, tenant: Option<String>, json: bool) -> Result<()> {
    let query = tenant.as_deref().map(|tenant| ("tenant", tenant));
    let uploads: Vec<UploadInfo> = client.get(&format!("/v1/{what}s"), query.as_slice()).await?;
    let columns = "TENANT|NAME|STATE|VERSIONS>|NEWEST SHA-256|SIZE>|UPLOADED (UTC)";
    print_list(&uploads, json, columns, |info| {
        let newest = info.versions.first();
        [
            info.tenant.clone().unwrap_or_else(|| "(all tenants)".to_owned()),
            info.name.clone(),
            state(info).to_owned(),
            info.versions.len().to_string(),
            newest.map(|newest| newest.sha256.clone()).unwrap_or_default(),
            newest.map(|newest| bytes(newest.bytes)).unwrap_or_default(),
            newest.map(|newest| utc(newest.uploaded_at)).unwrap_or_default(),
        ]
    })
}

fn show(upload: &UploadInfo, json: bool) -> Result<()> {
    if json {
        return Ok(print_json(upload)?);
    }
    let whose = upload.tenant.as_deref().map_or_else(
        || format!("{} (shared by all tenants)", upload.name),
        |tenant| format!("{tenant}/{}", upload.name),
    );
    say!("{whose}: {}", state(upload));
    let rows = upload.versions.iter().map(|version| {
        [
            version.sha256.clone(),
            bytes(version.bytes),
            utc(version.uploaded_at),
        ]
    });
    print_table("SHA-256|SIZE>|UPLOADED (UTC)", rows)
}

fn state(upload: &UploadInfo) -> &'static str {
    if upload.disabled { "disabled" } else { "active" }
}

/// Uploads a model with the same serialization as trainers, which find it on the host by SHA-256.
async fn push(
    client: &AdminClient,
    name: &str,
    path: &Path,
    interface: &InterfaceFlags,
) -> Result<UploadInfo> {
    let model = read_model(path, interface)?;
    let content = model.sha256().and_then(|sha256| Ok((sha256, model.to_bytes()?)));
    let (sha256, bytes) = content.with_context(|| format!("cannot upload the model {}", path.display()))?;
    let digest = repr_digest(&sha256).unwrap_or_default();
    let path = format!("/v1/models/{name}");
    Ok(client.put(&path, &digest, bytes.into()).await?)
}
