//! `frostline admin model publish`: a file's way to a host.

use crate::train::read_model;
use anyhow::{Context, Result};
use frostline_client::AdminClient;
use frostline_wire::{UploadInfo, repr_digest};
use std::path::Path;

/// Sends a model as one file, written the way trainers write theirs: by its SHA-256 they see that the host has what they use.
pub(super) async fn publish(client: &AdminClient, name: &str, path: &Path) -> Result<UploadInfo> {
    let model = read_model(path)?;
    let cannot = || format!("cannot publish the model {}", path.display());
    let sha256 = model.sha256().with_context(cannot)?;
    let bytes = model.to_bytes().with_context(cannot)?;
    let digest = repr_digest(&sha256).unwrap_or_default();
    let path = format!("/v1/models/{name}");
    Ok(client.put(&path, &digest, bytes.into()).await?)
}
