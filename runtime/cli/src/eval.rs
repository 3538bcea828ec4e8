//! `frostline eval`, which evaluates a model on labeled images.

use crate::arguments::EvalFlags;
use crate::figures;
use crate::host::{HostAccess, HostConnection, data_url};
use crate::output::{print_json, stdout};
use crate::reporter::Reporter;
use crate::train::{model_name, read_model_and_pixels};
use anyhow::Result;
use frostline_trainer::{Evaluation, EvaluationJob, Tables, evaluate};
use std::io::Write;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub(crate) async fn run(flags: EvalFlags, json: bool, stop: &CancellationToken) -> Result<()> {
    let pixels = flags.pixels.settings()?;
    let job = EvaluationJob {
        model: read_model_and_pixels(&flags.inputs.model, &flags.inputs.interface, &pixels)?,
        model_name: model_name(&flags.inputs.model),
        guest: flags.guest.read()?,
        root: data_url(&flags.inputs.data)?,
        part: flags.part,
        layout: flags.inputs.layout,
        labels: flags.labels,
        unlisted: flags.unlisted,
        batch: flags.batch,
        on_bad_sample: flags.on_bad_sample,
        predictions: flags.predictions,
        pixels,
        device: flags.compute.device.parse()?,
        threads: flags.compute.threads,
        image_pixels: flags.host.image_pixels,
    };
    // Without a guest, the host only reads objects.
    let device = if job.guest.is_some() {
        flags.compute.device.as_str()
    } else {
        "cpu"
    };
    let connection = HostConnection::open(HostAccess::from_flags(&flags.host)?, &job.root, device).await?;
    let reporter = Arc::new(Reporter::beside(json));
    let result = evaluate(job, connection.hosts(), reporter.events(), stop.clone()).await;
    reporter.finish();
    connection.close().await;
    let evaluation = result?;
    if json {
        return Ok(print_json(&evaluation)?);
    }
    show(&evaluation)
}

fn show(evaluation: &Evaluation) -> Result<()> {
    let top_5 = match &evaluation.tables {
        Tables::Classes {
            top_5_accuracy,
            classes,
            ..
        } if classes.len() > 5 => format!(", top-5 {:.1} %", top_5_accuracy * 100.0),
        _ => String::new(),
    };
    let which = if evaluation.held_out {
        " held out by training"
    } else {
        ""
    };
    writeln!(
        stdout(),
        "{}{top_5} on {} images{which}",
        evaluation.quality,
        evaluation.samples
    )?;
    if let Some(note) = &evaluation.int8 {
        writeln!(
            stdout(),
            "{} on the validation images in training, with frozen layers in int8",
            note.text
        )?;
    }
    figures::print(&evaluation.tables)
}
