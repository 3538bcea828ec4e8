//! `frostline model quantise`.

use crate::arguments::Quantise as Flags;
use crate::event_text;
use crate::host::{Access, Connection, data_url};
use crate::output::{print_json, stdout};
use crate::reporter::Reporter;
use crate::train::read_model_and_pixels;
use anyhow::Result;
use frostline_trainer::{Event, QuantisationJob, last_cut_before_head, quantise, whole_file};
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tokio_util::sync::CancellationToken;

/// What was written.
#[derive(Serialize)]
struct Written {
    model: PathBuf,
    /// Whether its layers compute in int8.
    int8: bool,
    /// Up to here.
    freeze: String,
    bytes: usize,
    /// What calibration found.
    found: Option<Event>,
}

pub(crate) async fn run(flags: Flags, json: bool, stop: &CancellationToken) -> Result<()> {
    let pixels = flags.pixels.settings()?;
    let model = read_model_and_pixels(&flags.model, &pixels)?;
    let freeze = match &flags.freeze {
        Some(cut) => model.network()?.named(cut)?.name.clone(),
        None => last_cut_before_head(&model)?,
    };
    let job = QuantisationJob {
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
    let connection = Connection::open(Access::from_flags(&flags.host)?, &job.root, "cpu").await?;
    let reporter = Arc::new(Reporter::beside(json));
    let (shown, found) = (Arc::clone(&reporter), Arc::new(OnceLock::new()));
    let tried = Arc::clone(&found);
    let events = Arc::new(move |event: Event| {
        shown.show(&event);
        if let Event::Int8 { .. } = event {
            let _ = tried.set(event);
        }
    });
    let quantised = tokio::select! {
        quantised = quantise(job, connection.hosts(), events) => quantised.map_err(anyhow::Error::from),
        () = stop.cancelled() => Err(anyhow::anyhow!("interrupted; nothing was written")),
    };
    reporter.finish();
    connection.close().await;
    let quantised = quantised?;
    let int8 = quantised.is_some();
    let found = found.get();
    let bytes = quantised.unwrap_or(model).to_bytes()?;
    whole_file::write_to(
        &flags.out,
        |path| File::create_new(path),
        |file| file.write_all(&bytes),
    )?;
    let written = Written {
        model: flags.out,
        int8,
        freeze,
        bytes: bytes.len(),
        found: found.cloned(),
    };
    if json {
        return Ok(print_json(&written)?);
    }
    let how = if int8 { "in int8" } else { "as they were" };
    if let Some(line) = found.and_then(event_text::text) {
        say!("{line}");
    }
    let (model, freeze) = (written.model.display(), &written.freeze);
    Ok(writeln!(stdout(), "{model}: layers up to '{freeze}' {how}")?)
}
