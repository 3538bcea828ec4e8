//! `frostline plan`.

use crate::arguments::Plan as Flags;
use crate::host::{Connection, data_url};
use crate::output::{Reporter, bytes, print_json, print_table};
use crate::train::{last_cut_before_head, read_model};
use anyhow::{Context, Result};
use frostline_trainer::{
    Explanation, Flow, Guest, Job, Link, Planned, Policy, Simulation, Summary, SummaryRow,
};
use frostline_wire::Split;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub(crate) async fn run(flags: Flags, json: bool, stop: &CancellationToken) -> Result<()> {
    let policy: Policy = flags.policy.parse()?;
    if let Some(file) = &flags.simulate {
        return simulate(file, &policy, json);
    }
    let mut job = job(&flags)?;
    job.split = policy;
    let connection = Connection::open(flags.host.access(), &job.root, &flags.compute.device).await?;
    job.shared_cores = connection.is_embedded();
    let reporter = Arc::new(Reporter::beside(json));
    let events = Arc::clone(&reporter);
    let planning = frostline_trainer::plan(
        job,
        connection.hosts()?,
        Arc::new(move |event| events.show(&event)),
    );
    let planned = tokio::select! {
        planned = planning => planned.map_err(anyhow::Error::from),
        () = stop.cancelled() => Err(anyhow::anyhow!("interrupted; nothing was changed")),
    };
    reporter.finish();
    connection.close().await;
    show(&planned?, json)
}

/// A plan with the link it was made for, and how long choosing took once everything was measured.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    link: PrintedLink,
    choosing_seconds: f64,
}

#[derive(Serialize)]
struct PrintedLink {
    bytes_per_second: f64,
    round_trip_seconds: f64,
    connections: usize,
    connection_bytes_per_second: f64,
}

impl From<Link> for PrintedLink {
    fn from(link: Link) -> Self {
        Self {
            bytes_per_second: link.bytes_per_second,
            round_trip_seconds: link.round_trip.as_secs_f64(),
            connections: link.connections,
            connection_bytes_per_second: link.connection_bytes_per_second,
        }
    }
}

/// Plans on published measurements, without host or data.
fn simulate(file: &Path, policy: &Policy, json: bool) -> Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let simulation = Simulation::parse(&text).with_context(|| format!("cannot use {}", file.display()))?;
    let plan = simulation.plan(policy)?;
    let explanation = plan.explain(&simulation.workload());
    let flow = Flow {
        request_samples: simulation.batch,
        window: 1,
        ahead: 1,
    };
    let summary = plan
        .summary(flow, &simulation.workload())
        .context("there are no candidates")?;
    if json {
        return Ok(print_json(&summary)?);
    }
    print_plan(&summary, &explanation)
}

fn job(flags: &Flags) -> Result<Job> {
    let needed = |value: Option<PathBuf>, flag: &str| {
        value.with_context(|| format!("{flag} is needed, unless --simulate is there"))
    };
    let file = needed(flags.model.clone(), "--model")?;
    let data = flags
        .data
        .as_deref()
        .context("--data is needed, unless --simulate is there")?;
    let model = read_model(&file)?;
    let freeze = match &flags.training.freeze {
        Some(cut) => cut.clone(),
        None => last_cut_before_head(&model)?,
    };
    let name = file
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default();
    let out = std::env::temp_dir().join("unused.onnx");
    let mut job = Job::new(model, name, freeze, data_url(data)?, Guest::stock(), out);
    job.encoding = flags.training.encoding.fixed();
    job.layout = flags.layout.into();
    job.validation_share = flags.training.validation;
    job.epochs = flags.training.epochs;
    job.batch = flags.training.batch;
    job.device = flags.compute.device.parse()?;
    job.threads = flags.compute.threads;
    job.link_bytes_per_second = flags.link_bytes_per_second;
    let candidates: Vec<Split> = flags
        .candidates
        .iter()
        .map(|name| Split::from(name.as_str()))
        .collect();
    job.candidates = (!candidates.is_empty()).then_some(candidates);
    Ok(job)
}

fn show(planned: &Planned, json: bool) -> Result<()> {
    if json {
        return Ok(print_json(&Printed {
            summary: &planned.summary,
            link: planned.link.into(),
            choosing_seconds: planned.seconds,
        })?);
    }
    print_plan(&planned.summary, &planned.explanation)?;
    let megabits = |bytes_per_second: f64| bytes_per_second * 8.0 / 1e6;
    let Link {
        connections,
        connection_bytes_per_second,
        ..
    } = planned.link;
    println!(
        "\nlink {:.1} Mbit/s over {connections} connections ({:.1} Mbit/s over one alone), {:.1} ms there and back",
        megabits(planned.workload.link_bytes_per_second),
        megabits(connection_bytes_per_second),
        planned.link.round_trip.as_secs_f64() * 1e3,
    );
    println!(
        "{} iterations of {} images; chosen in {:.1} ms",
        planned.workload.iterations,
        planned.workload.batch,
        planned.seconds * 1e3
    );
    Ok(())
}

fn print_plan(summary: &Summary, explanation: &Explanation) -> Result<()> {
    println!("{}", explanation.headline);
    if let Some(layers) = &explanation.layers {
        println!("{layers}");
    }
    println!();
    let milliseconds = |seconds: f64| format!("{:.1}", seconds * 1e3);
    let row = |row: &SummaryRow| {
        let rival = explanation.rivals.iter().find(|rival| rival.split == row.split);
        vec![
            row.split.to_string(),
            row.encoding.to_string(),
            bytes(row.bytes_per_sample.round() as u64),
            milliseconds(row.stages.host_seconds),
            milliseconds(row.stages.link_seconds),
            milliseconds(row.stages.trainer_seconds),
            milliseconds(row.iteration_seconds),
            row.bottleneck.to_string(),
            rival.map_or_else(|| "chosen".to_owned(), |rival| format!("{:.2}x", rival.ratio)),
            rival.and_then(|rival| rival.wins_if.clone()).unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = summary.candidates.iter().map(row).collect();
    print_table(
        &[
            "SPLIT",
            "AS",
            "AN IMAGE",
            "HOST MS",
            "LINK MS",
            "TRAINER MS",
            "ITERATION MS",
            "BOUND BY",
            "COSTS",
            "WOULD WIN IF",
        ],
        &[false, false, true, true, true, true, true, false, true, false],
        &rows,
    )?;
    println!(
        "\nrequests of {} images, {} open at once; {} batches extracted ahead",
        summary.request_samples, summary.window, summary.batches_ahead
    );
    Ok(())
}
