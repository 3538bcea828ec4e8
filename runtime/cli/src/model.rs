//! `frostline model`.

use crate::arguments::{HostFlags, Model as Command};
use crate::output::{bytes, meant, print_each, print_json, print_table};
use crate::train::read_model;
use anyhow::{Context, Result, bail};
use frostline_wire::{CutInfo, ModelInfo};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::path::Path;

/// What is shown of a model, wherever it lies.
#[derive(Serialize)]
struct Shown {
    name: String,
    /// Of the file, or of what the host holds.
    sha256: String,
    /// Of a file: what a host shows it by. A model is held as one file written our way, which another exporter's file is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    host_sha256: Option<String>,
    input: String,
    input_shape: Vec<usize>,
    cuts: Vec<CutInfo>,
}

pub(crate) async fn run(command: Command, json: bool) -> Result<()> {
    let (model, host) = match command {
        Command::Show { model, host } => (model, host),
        Command::List { host } => return list(&host.access().client()?.models().await?, json),
    };
    let shown = match &host.host {
        None => read(Path::new(&model))?,
        Some(url) => ask(url, &host, &model).await?,
    };
    if json {
        return Ok(print_json(&shown)?);
    }
    println!("{}  sha256:{}", shown.name, shown.sha256);
    if let Some(held) = shown.host_sha256.filter(|held| *held != shown.sha256) {
        println!("where a host holds it  sha256:{held}");
    }
    println!("input {} {:?}\n", shown.input, shown.input_shape);
    let row = |cut: &CutInfo| {
        let shape = cut
            .shape
            .iter()
            .map(usize::to_string)
            .collect::<Vec<_>>()
            .join("x");
        vec![
            cut.name.clone(),
            shape,
            bytes(cut.bytes_per_sample),
            format!("{:.1} %", cut.compute_share * 100.0),
        ]
    };
    let rows: Vec<_> = shown.cuts.iter().map(row).collect();
    print_table(
        &["CUT", "SHAPE", "AN IMAGE", "COMPUTE"],
        &[false, false, true, true],
        &rows,
    )?;
    Ok(())
}

fn list(models: &[ModelInfo], json: bool) -> Result<()> {
    if json {
        return Ok(print_each(models)?);
    }
    let row = |model: &ModelInfo| {
        vec![
            model.name.clone(),
            if model.shared { "all tenants" } else { "you" }.to_owned(),
            bytes(model.bytes),
            model.sha256.clone(),
        ]
    };
    let rows: Vec<_> = models.iter().map(row).collect();
    print_table(
        &["NAME", "FOR", "SIZE", "SHA-256"],
        &[false, false, true, false],
        &rows,
    )?;
    Ok(())
}

fn read(file: &Path) -> Result<Shown> {
    let model = read_model(file)?;
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let network = model.network()?;
    let cut = |cut: &frostline_graph::Cut| CutInfo {
        name: cut.name.clone(),
        shape: cut.shape.dims().to_vec(),
        bytes_per_sample: cut.bytes_per_sample as u64,
        compute_share: cut.compute_share,
    };
    Ok(Shown {
        name: file.display().to_string(),
        sha256: hex::encode(Sha256::digest(&bytes)),
        host_sha256: Some(model.sha256()?),
        input: network.input.name.clone(),
        input_shape: network.input.shape.dims().to_vec(),
        cuts: network.cuts.iter().map(cut).collect(),
    })
}

async fn ask(url: &str, flags: &HostFlags, name: &str) -> Result<Shown> {
    let client = flags.access().client()?;
    let Some(model) = client.model(name).await? else {
        let known: Vec<String> = client
            .models()
            .await?
            .into_iter()
            .map(|model| model.name)
            .collect();
        bail!(
            "there is no model '{name}' on {url}{}; `frostline model list` shows those there are",
            meant(name, &known)
        );
    };
    Ok(Shown {
        name: model.name,
        sha256: model.sha256,
        host_sha256: None,
        input: model.input,
        input_shape: model.input_shape,
        cuts: model.cuts,
    })
}
