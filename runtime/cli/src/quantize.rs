//! `frostline model quantize`, which quantizes layers to int8 and compares them with f32.

use crate::arguments::QuantizeFlags;
use crate::event_text;
use crate::host::{HostAccess, HostConnection, data_url};
use crate::output::{print_json, stdout};
use crate::reporter::Reporter;
use crate::train::read_model_and_pixels;
use anyhow::Result;
use frostline_trainer::{Event, QuantizationJob, frozen_up_to, quantize, whole_file};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tokio_util::sync::CancellationToken;

/// Output of `--json`.
#[derive(Serialize)]
struct QuantizedOutput {
    model: PathBuf,
    /// True if the layers are in int8.
    quantized: bool,
    /// Cut up to which the layers are quantized.
    freeze: String,
    bytes: usize,
    /// The event `int8`.
    comparison: Option<Event>,
}

pub(crate) async fn run(flags: QuantizeFlags, json: bool, stop: &CancellationToken) -> Result<()> {
    let pixels = flags.pixels.settings()?;
    let model = read_model_and_pixels(&flags.model, &flags.interface, &pixels)?;
    let (model, freeze) = frozen_up_to(model, flags.freeze.as_deref())?;
    let job = QuantizationJob {
        model: model.clone(),
        freeze: freeze.clone(),
        precision: flags.prefix_precision,
        allow_imprecise: flags.allow_imprecise,
        root: data_url(&flags.data)?,
        layout: flags.layout,
        pixels,
        threads: flags.threads,
    };
    whole_file::check(&flags.out)?;
    let connection = HostConnection::open(HostAccess::from_flags(&flags.host)?, &job.root, "cpu").await?;
    let reporter = Arc::new(Reporter::beside(json));
    let shown = Arc::clone(&reporter);
    let comparison = Arc::new(OnceLock::new());
    let compared = Arc::clone(&comparison);
    let events = Arc::new(move |event: Event| {
        shown.show(&event);
        if let Event::Int8 { .. } = event {
            let _ = compared.set(event);
        }
    });
    let network = tokio::select! {
        network = quantize(job, connection.hosts(), events) => network.map_err(anyhow::Error::from),
        () = stop.cancelled() => Err(anyhow::anyhow!("interrupted; nothing was written")),
    };
    reporter.finish();
    connection.close().await;
    let network = network?;
    let quantized = network.is_some();
    let comparison = comparison.get();
    let bytes = network.unwrap_or(model).without_joints()?.to_bytes()?;
    whole_file::write(&flags.out, |file| file.write_all(&bytes))?;
    let written = QuantizedOutput {
        model: flags.out,
        quantized,
        freeze,
        bytes: bytes.len(),
        comparison: comparison.cloned(),
    };
    if json {
        return Ok(print_json(&written)?);
    }
    let how = if quantized { "in int8" } else { "in f32" };
    if let Some(line) = comparison.and_then(event_text::text) {
        say!("{line}");
    }
    let model = written.model.display();
    let freeze = &written.freeze;
    Ok(writeln!(stdout(), "{model}: layers up to '{freeze}' {how}")?)
}
