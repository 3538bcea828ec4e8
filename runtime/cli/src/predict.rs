//! `frostline predict`, which classifies images and other files on this machine.

use crate::arguments::PredictFlags;
use crate::host::{HostConnection, data_url};
use crate::output::{print_json, stdout};
use crate::reporter::{image_counter, warn};
use crate::train::read_model_and_pixels;
use anyhow::{Context, Result, bail};
use frostline_job::{Events, PixelSource, pixels_line, plain_line};
use frostline_trainer::{Answer, Event, Guest, GuestFiles, LocalFiles, Prediction, PredictionJob, Predictor};
use serde::Serialize;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Output of `--json` for an image.
#[derive(Serialize)]
struct PrintedAnswer<'a> {
    path: &'a str,
    #[serde(flatten)]
    answer: &'a Answer,
}

/// Output of `--json` on standard error for an unusable image.
#[derive(Serialize)]
struct UnusableImage<'a> {
    path: &'a str,
    error: &'a str,
}

pub(crate) async fn run(flags: PredictFlags, json: bool, stop: &CancellationToken) -> Result<()> {
    let pixels = flags.pixels.settings()?;
    let guest = flags.guest.read()?;
    let job = PredictionJob {
        model: read_model_and_pixels(&flags.model, &flags.interface, &pixels)?,
        paths: flags.paths,
        top: flags.top,
        batch: flags.batch,
        pixels,
        device: flags.compute.device.parse()?,
        threads: flags.compute.threads,
        image_pixels: flags.image_pixels,
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => bail!("interrupted before the last image"),
        done = predict(job, guest, json) => done,
    }
}

async fn predict(job: PredictionJob, guest: Option<Guest>, json: bool) -> Result<()> {
    let Some(guest) = guest else {
        return print_all(Predictor::open(job).await?, json).await;
    };
    let files = job.paths.iter().map(|path| local_files(path));
    let files = files.collect::<Result<Vec<_>>>()?;
    let device = job.device.to_string();
    let roots = files.iter().map(|files| files.root.clone()).collect();
    let connection = HostConnection::embed(roots, &device, job.image_pixels).await?;
    let guest = GuestFiles {
        guest,
        host: connection.client()?,
        files,
    };
    let events: Events = Arc::new(move |event: Event| warn(&event, json));
    let result = match Predictor::open_with_guest(job, guest, &events).await {
        Ok(predictor) => print_all(predictor, json).await,
        Err(error) => Err(error.into()),
    };
    connection.close().await;
    result
}

/// Returns the folder and the file name of a path.
fn local_files(path: &Path) -> Result<LocalFiles> {
    let metadata = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    let (folder, name) = if metadata.is_dir() {
        (path, None)
    } else {
        let folder = path.parent().unwrap_or(Path::new(""));
        (
            folder,
            path.file_name().map(|name| name.to_string_lossy().into_owned()),
        )
    };
    let shown = if folder.as_os_str().is_empty() {
        "."
    } else {
        folder
            .to_str()
            .with_context(|| format!("the path {} is not UTF-8", folder.display()))?
    };
    Ok(LocalFiles {
        root: data_url(shown)?,
        folder: folder.to_owned(),
        name,
    })
}

async fn print_all(mut predictor: Predictor, json: bool) -> Result<()> {
    if let Some((recipe, source @ (PixelSource::Assumed | PixelSource::Network))) = predictor.pixels
        && !json
    {
        tell!("pixels     {}", pixels_line(&recipe, source));
    }
    if let Some(message) = &predictor.warning {
        let message = message.to_owned();
        warn(&Event::Warning { message }, json);
    }
    let mut images = 0_u64;
    let mut failed = 0_u64;
    let counter = image_counter();
    while let Some(batch) = predictor.next().await? {
        for prediction in &batch {
            images += 1;
            failed += u64::from(prediction.answer.is_err());
            counter.suspend(|| print(prediction, json))?;
        }
        counter.set_position(images);
    }
    counter.finish_and_clear();
    match (failed, images) {
        (0, _) => Ok(()),
        (1, 1) => bail!("cannot use the image"),
        _ => bail!("cannot use {failed} of {images} images"),
    }
}

fn print(prediction: &Prediction, json: bool) -> io::Result<()> {
    let path = &*prediction.path.to_string_lossy();
    match &prediction.answer {
        Ok(answer) if json => print_json(&PrintedAnswer { path, answer }),
        Ok(answer) => {
            let line = format!("{path}: {}", words(answer));
            writeln!(stdout(), "{}", plain_line(&line))
        }
        Err(error) => {
            if json {
                tell!("{}", serde_json::to_string(&UnusableImage { path, error })?);
            } else {
                tell!("{}", plain_line(&format!("{path}: {error}")));
            }
            Ok(())
        }
    }
}

fn words(answer: &Answer) -> String {
    let each: Vec<String> = match answer {
        Answer::Classes(classes) => classes
            .iter()
            .map(|likely| format!("{} {:.1} %", likely.class, f64::from(likely.probability) * 100.0))
            .collect(),
        Answer::Labels(labels) => labels
            .iter()
            .map(|flagged| {
                let yes = if flagged.yes { "yes" } else { "no" };
                let percent = f64::from(flagged.probability) * 100.0;
                format!("{} {yes} ({percent:.1} %)", flagged.label)
            })
            .collect(),
        Answer::Targets(targets) => targets
            .iter()
            .map(|estimated| format!("{} {}", estimated.target, estimated.value))
            .collect(),
    };
    each.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_trainer::{ClassProbability, LabelAnswer, TargetValue};

    #[test]
    fn answers_are_a_line_each() {
        let likely = |class: &str, probability| ClassProbability {
            class: class.to_owned(),
            probability,
        };
        let classes = Answer::Classes(vec![likely("cat", 0.93125), likely("dog", 0.05)]);
        assert_eq!(words(&classes), "cat 93.1 %, dog 5.0 %");
        let flagged = |label: &str, yes, probability| LabelAnswer {
            label: label.to_owned(),
            yes,
            probability,
        };
        let labels = Answer::Labels(vec![flagged("warm", true, 0.75), flagged("cold", false, 0.25)]);
        assert_eq!(words(&labels), "warm yes (75.0 %), cold no (25.0 %)");
        let targets = Answer::Targets(vec![TargetValue {
            target: "price".to_owned(),
            value: 12.5,
        }]);
        assert_eq!(words(&targets), "price 12.5");
        let said = PrintedAnswer {
            path: "1.jpg",
            answer: &targets,
        };
        assert_eq!(
            serde_json::to_value(said).unwrap(),
            serde_json::json!({"path": "1.jpg", "targets": [{"target": "price", "value": 12.5}]})
        );
    }
}
