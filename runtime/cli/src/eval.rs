//! `frostline eval`.

use crate::arguments::Eval;
use crate::host::{Connection, data_url};
use crate::output::{print_json, warn_of_host};
use crate::train::{on_bad_sample, read_model};
use anyhow::Result;
use frostline_trainer::{EvaluationJob, Event, evaluate};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub(crate) async fn run(flags: Eval, json: bool, stop: &CancellationToken) -> Result<()> {
    let job = EvaluationJob {
        model: read_model(&flags.inputs.model)?,
        root: data_url(&flags.inputs.data)?,
        layout: flags.inputs.layout.into(),
        batch: flags.batch,
        on_bad_sample: on_bad_sample(flags.on_bad_sample),
        pixels: None,
        device: flags.compute.device.parse()?,
        threads: flags.compute.threads,
    };
    let connection = Connection::open(flags.host.access(), &job.root, "cpu").await?;
    let events = Arc::new(|event| {
        if let Event::BadSample { key, message } = &event {
            eprintln!("skipped {key}: {message}");
        }
        warn_of_host(&event);
    });
    let result = evaluate(job, connection.hosts()?, events, stop.clone()).await;
    connection.close().await;
    let evaluation = result?;
    if json {
        print_json(&evaluation)?;
    } else {
        println!(
            "accuracy {:.1} % on {} images",
            evaluation.accuracy * 100.0,
            evaluation.samples
        );
    }
    Ok(())
}
