//! Cost of a large data set for the trainer: object names like those in ImageNet, from the first page of the
//! listing to the plan. For comparison, the listing requests are also timed alone, over loopback with answers
//! from memory.

mod listing;

use crate::proc_status::own_bytes;
use crate::report::Report;
use crate::run::last_object;
use anyhow::{Context, Result, bail};
use frostline_client::HostClient;
use frostline_e2e::repository;
use frostline_graph::Model;
use frostline_trainer::{Event, Job, ListedData, Measuring, TrainerError, train};
use listing::Names;
use serde::{Deserialize, Serialize};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// The number of classes in ImageNet, and the mean number of images per class.
const NAMES: Names = Names {
    classes: 1000,
    images: 1280,
};
const QUICK: Names = Names {
    classes: 100,
    images: 128,
};
const BATCH: usize = 64;

/// Measurement by a trainer process.
#[derive(Debug, Serialize, Deserialize)]
struct Measurement {
    /// Seconds until the objects are listed and divided into training and validation samples.
    data_seconds: f64,
    /// Seconds until the link is measured and the candidate splits are known.
    plan_seconds: f64,
    /// Peak memory in MB.
    peak_mb: f64,
    train: usize,
    validation: usize,
    classes: usize,
}

pub(crate) fn run(report: &mut Report) -> Result<()> {
    if let Some(url) = report.listing() {
        println!("{}", serde_json::to_string(&measure(url)?)?);
        std::process::exit(0);
    }
    let names = if report.quick() { QUICK } else { NAMES };
    let runtime = tokio::runtime::Runtime::new()?;
    let host = runtime.block_on(listing::serve(names))?;
    let requests = runtime.block_on(listing::read(&host.url))?;
    let measured = measure_in_child(&host.url)?;
    println!("{} objects in {} classes", names.count(), names.classes);
    println!("{:<44} {requests:>8.2} s", "listing requests only");
    println!(
        "{:<44} {:>8.2} s",
        "listed and divided into batches", measured.data_seconds
    );
    println!("{:<44} {:>8.2} s", "ready to plan", measured.plan_seconds);
    println!(
        "{:<44} {:>8.0} MB",
        "peak memory of the trainer", measured.peak_mb
    );
    if measured.train + measured.validation != names.count() || measured.classes != names.classes {
        bail!("the trainer read a different listing: {measured:?}");
    }
    report.set("objects", names.count());
    report.set("request_seconds", requests);
    report.set("data_seconds", measured.data_seconds);
    let key = if report.quick() { "13k" } else { "1280k" };
    report.set(&format!("seconds_{key}"), measured.plan_seconds);
    report.set(&format!("peak_mb_{key}"), measured.peak_mb);
    Ok(())
}

/// Runs the measurement in a child process so that the peak memory includes only the trainer.
fn measure_in_child(url: &str) -> Result<Measurement> {
    let mut trainer = Command::new(std::env::current_exe()?);
    let measured = last_object(trainer.args(["dataset", "--listing", url]))?;
    serde_json::from_value(measured).context("unexpected output of the trainer")
}

/// Recorded events of the job.
#[derive(Default)]
struct ObservedEvents {
    data: Option<(f64, usize, usize, usize)>,
    planned: Option<f64>,
}

/// Starts a job with the listing at `url` and stops it when data and candidate splits are known, just before
/// the trainer would run the network.
fn measure(url: &str) -> Result<Measurement> {
    let model = Model::read(repository().join("models/zoo/demo/backbone.onnx"))?;
    let out = std::env::temp_dir().join("unused.onnx");
    let (name, freeze) = ("backbone".to_owned(), "features".to_owned());
    let mut job = Job::new(model, name, freeze, "photos".to_owned(), out);
    (job.spec.validation, job.spec.recipe.batch, job.cache) = (Some(0.04), BATCH, None);
    let stop = CancellationToken::new();
    let seen: Arc<Mutex<ObservedEvents>> = Arc::default();
    let (heard, enough, started) = (Arc::clone(&seen), stop.clone(), Instant::now());
    let events = Arc::new(move |event| {
        let Ok(mut seen) = heard.lock() else { return };
        let now = started.elapsed().as_secs_f64();
        match event {
            Event::Dataset(ListedData {
                classes,
                train,
                validation,
                ..
            }) => seen.data = Some((now, train, validation, classes.len())),
            Event::Measuring {
                what: Measuring::Trainer,
            } => {
                seen.planned = Some(now);
                enough.cancel();
            }
            _ => {}
        }
    });
    let client = HostClient::new(url, None)?;
    let runtime = tokio::runtime::Runtime::new()?;
    match runtime.block_on(train(job, client, events, stop)) {
        Err(TrainerError::Cancelled | TrainerError::Stopped { .. }) => {}
        Err(error) => return Err(error.into()),
        Ok(_) => bail!("the job was not stopped after its plan"),
    }
    let seen = seen.lock().ok().context("the events are poisoned")?;
    let (data_seconds, train, validation, classes) = seen.data.context("no data event")?;
    Ok(Measurement {
        data_seconds,
        plan_seconds: seen.planned.context("no plan event")?,
        peak_mb: own_bytes("VmHWM")? as f64 / 1e6,
        train,
        validation,
        classes,
    })
}
