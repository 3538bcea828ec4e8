//! `frostline admin guest` and `frostline admin model`.

use super::client::AdminClient;
use super::{confirm, done};
use crate::arguments::Uploads;
use crate::output::{bytes, print_json, print_table};
use anyhow::Result;
use serde::{Deserialize, Serialize};

/// What guests and models have in common.
#[derive(Serialize, Deserialize)]
struct Info {
    name: String,
    sha256: String,
    bytes: u64,
    uploaded_at: u64,
}

pub(super) async fn run(client: &AdminClient, what: &str, command: Uploads, json: bool) -> Result<()> {
    match command {
        Uploads::List { tenant } => {
            let uploads: Vec<Info> = client.get(&format!("/v1/tenants/{tenant}/{what}s")).await?;
            if json {
                return Ok(print_json(&uploads)?);
            }
            let row = |info: &Info| {
                let Info { name, sha256, .. } = info;
                vec![
                    name.clone(),
                    sha256.clone(),
                    bytes(info.bytes),
                    info.uploaded_at.to_string(),
                ]
            };
            let rows: Vec<Vec<String>> = uploads.iter().map(row).collect();
            print_table(
                &["NAME", "SHA-256", "SIZE", "UPLOADED AT"],
                &[false, false, true, true],
                &rows,
            )?;
            Ok(())
        }
        Uploads::Remove { tenant, name, yes } => {
            confirm(
                yes,
                &format!("Remove the {what} {name} of {tenant} with all its versions?"),
            )?;
            client
                .delete(&format!("/v1/tenants/{tenant}/{what}s/{name}"))
                .await?;
            done(&name, "removed", json)
        }
    }
}
