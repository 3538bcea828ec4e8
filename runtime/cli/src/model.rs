//! `frostline model`, which shows the cuts of a model and lists the models on a host.

use crate::arguments::{HostFlags, InterfaceFlags, ModelCommand};
use crate::hints::{Hinted, NextStep};
use crate::output::{bytes, meant, print_columns, print_json, print_list, stdout};
use crate::quantize;
use crate::train::read_model;
use anyhow::{Context, Result, anyhow, bail};
use frostline_graph::{Interface, Model, ModelLimits, Network};
use frostline_trainer::cut_tensors;
use frostline_training::{Trainability, TrainingError};
use frostline_wire::{CutInfo, ModelInfo};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use tokio_util::sync::CancellationToken;

/// Printed information about a model in a file or on a host.
#[derive(Serialize)]
struct ModelDetails {
    name: String,
    /// SHA-256 of the file or the uploaded model.
    sha256: String,
    /// For a file, the SHA-256 shown by hosts. Uploads are serialized again, so the bytes may differ from
    /// files of other exporters.
    #[serde(skip_serializing_if = "Option::is_none")]
    host_sha256: Option<String>,
    input: String,
    input_shape: Vec<usize>,
    /// True if the whole network can be trained with nothing frozen.
    #[serde(skip_serializing_if = "Option::is_none")]
    trainable_whole: Option<bool>,
    cuts: Vec<ShownCut>,
}

/// A cut and additional information for local files.
#[derive(Serialize)]
struct ShownCut {
    #[serde(flatten)]
    info: CutInfo,
    /// Module in the source code that returns the tensor. This is also a name of the cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<String>,
    #[serde(flatten)]
    verdict: Option<CutVerdict>,
}

/// Whether a job can use a cut as freeze cut.
#[derive(Serialize)]
struct CutVerdict {
    /// True if the layers after the cut can be trained.
    trainable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_trainable_because: Option<String>,
    /// True if a host admits the layers before the cut.
    admitted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_admitted_because: Option<String>,
}

pub(crate) async fn run(command: ModelCommand, json: bool, stop: &CancellationToken) -> Result<()> {
    let (model, interface, host) = match command {
        ModelCommand::Show {
            model,
            interface,
            host,
        } => (model, interface, host),
        ModelCommand::Quantize(flags) => return quantize::run(*flags, json, stop).await,
        ModelCommand::List { host } => return list(&host.access().client()?.models().await?, json),
    };
    let shown = match &host.host {
        None => read(Path::new(&model), &interface)?,
        Some(_) if interface.interface() != Interface::default() => {
            let error =
                anyhow!("image size and output can only be selected for files, not for uploaded models");
            return Err(Hinted::wrap(error, vec![NextStep::unset(interface.names())]));
        }
        Some(url) => ask(url, &host, &model).await?,
    };
    if json {
        return Ok(print_json(&shown)?);
    }
    writeln!(stdout(), "{}  sha256:{}", shown.name, shown.sha256)?;
    if let Some(held) = shown.host_sha256.filter(|held| *held != shown.sha256) {
        writeln!(stdout(), "on a host  sha256:{held}")?;
    }
    let whole = match shown.trainable_whole {
        Some(true) => ", trainable with --freeze none",
        _ => "",
    };
    writeln!(stdout(), "input {} {:?}{whole}\n", shown.input, shown.input_shape)?;
    table(&shown.cuts)?;
    for line in reasons(&shown.cuts) {
        writeln!(stdout(), "\n{line}")?;
    }
    Ok(())
}

fn table(cuts: &[ShownCut]) -> Result<()> {
    let with_modules = cuts.iter().any(|cut| cut.module.is_some());
    let with_verdicts = cuts.iter().any(|cut| cut.verdict.is_some());
    // Title and visibility.
    let columns = [
        ("CUT", true),
        ("MODULE", with_modules),
        ("SHAPE", true),
        ("PER IMAGE>", true),
        ("COMPUTE>", true),
        ("TRAINABLE FROM HERE", with_verdicts),
        ("ADMITTED BY HOSTS", with_verdicts),
    ];
    let rows = cuts.iter().map(|cut| {
        let there = cells(cut).into_iter().zip(columns);
        let there = there.filter(|(_, (_, there))| *there);
        there.map(|(cell, _)| cell).collect::<Vec<_>>()
    });
    let there = columns.iter().filter(|(_, there)| *there);
    print_columns(there.map(|(title, _)| *title), rows)
}

/// Returns the cells of all columns of [`table`].
fn cells(cut: &ShownCut) -> [String; 7] {
    let shape: Vec<String> = cut.info.shape.iter().map(usize::to_string).collect();
    let verdict = cut.verdict.as_ref();
    [
        cut.info.name.clone(),
        cut.module.clone().unwrap_or_default(),
        shape.join("x"),
        bytes(cut.info.bytes_per_sample),
        format!("{:.1} %", cut.info.compute_share * 100.0),
        verdict.map_or("", |verdict| yes(verdict.trainable)).to_owned(),
        verdict.map_or("", |verdict| yes(verdict.admitted)).to_owned(),
    ]
}

fn yes(so: bool) -> &'static str {
    if so { "yes" } else { "no" }
}

/// Returns each reason once. A reason against training is shown with the last affected cut.
fn reasons(cuts: &[ShownCut]) -> Vec<String> {
    let mut verdicts = cuts.iter().filter_map(|cut| Some((cut, cut.verdict.as_ref()?)));
    let mut lines = Vec::new();
    let mut told = HashSet::new();
    for (cut, verdict) in verdicts.clone().rev() {
        if let Some(why) = verdict
            .not_trainable_because
            .as_deref()
            .filter(|why| told.insert(*why))
        {
            lines.push(format!("not trainable from '{}': {why}", cut.info.name));
        }
    }
    lines.reverse();
    if let Some((cut, why)) =
        verdicts.find_map(|(cut, verdict)| Some((cut, verdict.not_admitted_because.as_ref()?)))
    {
        lines.push(format!(
            "hosts do not admit the layers up to '{}' or a later cut: {why}",
            cut.info.name
        ));
    }
    lines
}

fn list(models: &[ModelInfo], json: bool) -> Result<()> {
    print_list(models, json, "NAME|FOR|SIZE>|SHA-256", |model| {
        [
            model.name.clone(),
            if model.shared { "all tenants" } else { "you" }.to_owned(),
            bytes(model.bytes),
            model.sha256.clone(),
        ]
    })
}

fn read(file: &Path, interface: &InterfaceFlags) -> Result<ModelDetails> {
    let model = read_model(file, interface)?;
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let network = model.network()?;
    let trainability = Trainability::analyze(&model);
    Ok(ModelDetails {
        name: file.display().to_string(),
        sha256: hex::encode(Sha256::digest(&bytes)),
        host_sha256: Some(model.sha256()?),
        input: network.input.name.clone(),
        input_shape: network.input.shape.dims().to_vec(),
        trainable_whole: Some(obstacle(&trainability, &network.input.name).is_none()),
        cuts: judged(&model, &network, &trainability),
    })
}

/// Returns the reason why a network cannot be trained from a cut.
fn obstacle(trainability: &Result<Trainability, TrainingError>, cut: &str) -> Option<String> {
    match trainability {
        Ok(trainability) => trainability.obstacle(cut).map(ToString::to_string),
        Err(error) => Some(error.to_string()),
    }
}

/// Returns all cuts of a network with a verdict.
fn judged(
    model: &Model,
    network: &Network,
    trainability: &Result<Trainability, TrainingError>,
) -> Vec<ShownCut> {
    let refused = model.first_refused_cut(&network.cuts, &ModelLimits::default());
    let judged = network.cuts.iter().enumerate().map(|(place, cut)| {
        let untrained = obstacle(trainability, &cut.name).filter(|_| cut.before_head);
        let unadmitted = refused.as_ref().filter(|refused| refused.first <= place);
        let title = network.title(cut);
        ShownCut {
            info: CutInfo {
                name: cut.name.clone(),
                shape: cut.shape.dims().to_vec(),
                bytes_per_sample: cut.bytes_per_sample as u64,
                compute_share: cut.compute_share,
                tensors: cut_tensors(cut),
            },
            module: (title != cut.name).then(|| title.to_owned()),
            verdict: Some(CutVerdict {
                trainable: cut.before_head && untrained.is_none(),
                not_trainable_because: untrained,
                admitted: unadmitted.is_none(),
                not_admitted_because: unadmitted.map(|refused| refused.why.to_string()),
            }),
        }
    });
    judged.collect()
}

async fn ask(url: &str, flags: &HostFlags, name: &str) -> Result<ModelDetails> {
    let client = flags.access().client()?;
    let Some(model) = client.model(name).await? else {
        let known: Vec<String> = client
            .models()
            .await?
            .into_iter()
            .map(|model| model.name)
            .collect();
        bail!(
            "unknown model '{name}' on {url}{}; see `frostline model list`",
            meant(name, &known)
        );
    };
    let cuts = model.cuts.into_iter();
    Ok(ModelDetails {
        name: model.name,
        sha256: model.sha256,
        host_sha256: None,
        input: model.input,
        input_shape: model.input_shape,
        trainable_whole: None,
        // The host has already admitted the model and has removed module names.
        cuts: cuts
            .map(|info| ShownCut {
                info,
                module: None,
                verdict: None,
            })
            .collect(),
    })
}
