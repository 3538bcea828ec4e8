//! `frostline extract`, which writes the activations of labeled images to a file.

mod check;
mod file;
mod input;
mod remote;
mod rows;

pub(crate) use file::check_output;

use crate::arguments::ExtractFlags;
use crate::hints::{Hinted, NextStep};
use crate::host::{HostAccess, HostConnection};
use crate::output::{bytes, print_result};
use crate::reporter::Reporter;
use anyhow::{Context, Result, anyhow, bail};
use check::ActivationCheck;
use file::RowFile;
use frostline_client::{Hosts, LabelTable, Listing, SampleFiles, Task};
use frostline_job::Event;
use frostline_rows::{RowCache, RowsError, SampleBatch};
use frostline_tensor::Tensor;
use frostline_trainer::{OnBadSample, fetcher};
use frostline_wire::{ObjectInfo, Split};
use input::ExtractionInput;
use remote::{OPEN_REQUESTS, RemoteActivations};
use rows::{RowSchema, SampleAnnotation};
use serde::Serialize;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// Summary of an extraction.
#[derive(Serialize)]
struct Done {
    event: &'static str,
    out: String,
    cut: String,
    /// Shape of an activation.
    shape: Vec<usize>,
    rows: u64,
    /// Number of rows read from the cache.
    cached: u64,
    left_out: u64,
    bytes_received: u64,
    seconds: f64,
}

/// Writes activations with these keys to a file, without splits and labels. Blocks.
pub(crate) fn write_activations(path: &Path, keys: Vec<&str>, activations: &Tensor) -> Result<()> {
    let shape = activations.shape().dims().get(1..).unwrap_or_default();
    let rows = RowSchema::new(shape, &[])?;
    let values = values_of(activations)?;
    let mut file = RowFile::create(path, check_output(path)?, rows.schema())?;
    file.write(&rows.batch(keys, values, &HashMap::new())?)?;
    file.finish()
}

pub(crate) async fn run(flags: ExtractFlags, json: bool, stop: &CancellationToken) -> Result<()> {
    let asked = ExtractionInput::read(&flags, json)?;
    let connection =
        HostConnection::open(HostAccess::from_flags(&flags.host)?, &asked.root, &flags.device).await?;
    let reporter = Arc::new(Reporter::beside(json));
    let told = Arc::clone(&reporter);
    let hosts = connection
        .hosts()
        .for_job(Arc::new(move |notice| told.show(&Event::Notice(notice))));
    let extracting = extract(&flags, asked, hosts, &reporter);
    let done = tokio::select! {
        done = extracting => done,
        () = stop.cancelled() => Err(anyhow::anyhow!("interrupted; nothing was written")),
    };
    reporter.finish();
    connection.close().await;
    let done = done?;
    let shape: Vec<String> = done.shape.iter().map(usize::to_string).collect();
    let cached = match done.cached {
        0 => String::new(),
        cached => format!(", {cached} of these from the cache"),
    };
    let text = format!(
        "{} rows of {} at {} written to {}{cached}; {} received in {:.1} s",
        done.rows,
        shape.join("x"),
        done.cut,
        done.out,
        bytes(done.bytes_received),
        done.seconds
    );
    print_result(json, &done, text)
}

async fn extract(
    flags: &ExtractFlags,
    asked: ExtractionInput,
    hosts: Hosts,
    reporter: &Arc<Reporter>,
) -> Result<Done> {
    let since = Instant::now();
    let (samples, places) = listed(flags, &asked, &hosts, reporter).await?;
    let (remote, cache) = checked(flags, &asked, &hosts, &samples, reporter).await?;
    let shape = remote.source.shape.clone();
    let rows = RowSchema::new(&shape, &remote.source.tensors)?;
    let mut writing = Writing {
        file: RowFile::create(&flags.out, asked.format, rows.schema())?,
        rows,
        places: &places,
        on_bad_sample: flags.on_bad_sample,
        reporter,
        written: 0,
        left_out: 0,
        cached: 0,
    };
    let mut batches = remote.rows(cache.clone(), &samples, flags.batch);
    while let Some(batch) = batches.next().await {
        tokio::task::block_in_place(|| writing.add(batch?))?;
        reporter.show(&Event::Progress {
            images: writing.written + writing.left_out,
            total: samples.len() as u64,
        });
    }
    if let Some(cache) = &cache {
        tokio::task::block_in_place(|| cache.store().settle());
        cache
            .store()
            .take_warnings()
            .into_iter()
            .for_each(|message| reporter.warning(message));
    }
    tokio::task::block_in_place(|| writing.file.finish())?;
    Ok(Done {
        event: "done",
        out: flags.out.display().to_string(),
        cut: asked.cut,
        shape,
        rows: writing.written,
        cached: writing.cached,
        left_out: writing.left_out,
        bytes_received: hosts.bytes_received(),
        seconds: since.elapsed().as_secs_f64(),
    })
}

/// Uploads the guest and the layers, opens the cache, and compares the first activations unless all are cached.
async fn checked(
    flags: &ExtractFlags,
    asked: &ExtractionInput,
    hosts: &Hosts,
    samples: &[ObjectInfo],
    reporter: &Arc<Reporter>,
) -> Result<(RemoteActivations, Option<Arc<RowCache>>)> {
    let inquiry = asked.send(hosts, flags).await?;
    let source = inquiry.source(hosts, Split::from(asked.cut.as_str())).await?;
    let cache = asked.open_cache(flags, &source, samples.len() as u64, reporter);
    let remote = RemoteActivations {
        fetcher: fetcher(OPEN_REQUESTS, 0, flags.host.image_pixels)?,
        hosts: hosts.clone(),
        source: source.into(),
    };
    if cache
        .as_ref()
        .map_or(0, |cache| cache.count(samples.iter().cloned(), None))
        < samples.len() as u64
    {
        let check = ActivationCheck {
            asked,
            inquiry: &inquiry,
            remote: &remote,
            reporter,
        };
        check.run(samples).await?;
    }
    Ok((remote, cache))
}

fn values_of(activations: &Tensor) -> Result<Vec<f32>> {
    Ok(activations.as_f32().context("activations must be f32")?.to_vec())
}

/// Returns the samples, and for each key the split and the label from the location or the table.
async fn listed(
    flags: &ExtractFlags,
    asked: &ExtractionInput,
    hosts: &Hosts,
    reporter: &Reporter,
) -> Result<(Vec<ObjectInfo>, HashMap<String, SampleAnnotation>)> {
    let listing = hosts.listing(&asked.root, flags.inputs.layout).await?;
    // Other guests may read any file.
    let files = match flags.guest {
        Some(_) => SampleFiles::All,
        None => SampleFiles::Images,
    };
    let (samples, mut places) = samples(&listing, files);
    if samples.is_empty() {
        bail!("no images found under {}", asked.root);
    }
    if let Some(file) = &flags.labels {
        relabel(&mut places, file, &asked.root)?;
    }
    let left_out = listing.left_out(files);
    if left_out.objects > 0 {
        reporter.show(&Event::LeftOut(left_out));
    }
    Ok((samples, places))
}

/// The output of an extraction.
struct Writing<'a> {
    file: RowFile,
    rows: RowSchema,
    /// Split and label by key.
    places: &'a HashMap<String, SampleAnnotation>,
    on_bad_sample: OnBadSample,
    reporter: &'a Reporter,
    written: u64,
    left_out: u64,
    /// Number of written activations from the cache.
    cached: u64,
}

impl Writing<'_> {
    /// Writes a batch. Blocks.
    ///
    /// # Errors
    /// Returns an error for the first bad image unless these are skipped, or if the file cannot be written.
    fn add(&mut self, batch: SampleBatch) -> Result<()> {
        let SampleBatch { samples, fetched, .. } = batch;
        for (index, why) in &fetched.bad {
            let key = key_of(&samples, *index);
            if matches!(self.on_bad_sample, OnBadSample::Fail) {
                let error = anyhow!("the image '{key}' cannot be used: {why}");
                return Err(Hinted::wrap(error, vec![NextStep::set("on_bad_sample", "skip")]));
            }
            self.reporter.show(&Event::BadSample {
                key: key.to_owned(),
                message: why.to_string(),
            });
            self.left_out += 1;
        }
        let Some(rows) = fetched.rows else { return Ok(()) };
        self.written += rows.count() as u64;
        self.cached += rows.cached_count() as u64;
        let (activations, pending) = rows.join(Ok::<_, RowsError>)?;
        let keys = fetched
            .indices
            .iter()
            .map(|index| key_of(&samples, *index))
            .collect();
        let batch = self.rows.batch(keys, values_of(&activations)?, self.places)?;
        pending.cache(activations);
        self.file.write(&batch)
    }
}

fn key_of(samples: &[ObjectInfo], index: usize) -> &str {
    samples.get(index).map_or("", |sample| sample.sample.key.as_str())
}

/// Returns all samples, and for each key the split and the label from the location.
fn samples(listing: &Listing, files: SampleFiles) -> (Vec<ObjectInfo>, HashMap<String, SampleAnnotation>) {
    let placed = listing.placed(files);
    let places = placed.iter().map(|placed| {
        let place = SampleAnnotation {
            part: placed.part,
            label: placed.class.map(str::to_owned),
        };
        (placed.object.key.to_owned(), place)
    });
    (
        placed.iter().map(|placed| placed.object.into()).collect(),
        places.collect(),
    )
}

/// Replaces splits and labels by those in the table `file`.
fn relabel(places: &mut HashMap<String, SampleAnnotation>, file: &Path, root: &str) -> Result<()> {
    let name = file.display().to_string();
    let bytes = std::fs::read(file).with_context(|| format!("cannot read the labels table '{name}'"))?;
    let table = LabelTable::parse(&name, &bytes, Task::Classes)?;
    if !places.keys().any(|key| table.get(key, None).is_some()) {
        bail!("'{name}' contains no image under {root}; use keys relative to the data root");
    }
    for (key, place) in places {
        *place = match table.get(key, place.part) {
            Some((part, class)) => SampleAnnotation {
                part,
                label: Some(class.to_owned()),
            },
            None => SampleAnnotation {
                part: None,
                label: None,
            },
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_client::Part;

    #[test]
    fn a_table_says_label_and_split() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("labels.csv");
        let relabeled = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let place = || SampleAnnotation {
                part: Some(Part::Train),
                label: Some("folder".to_owned()),
            };
            let keys = ["train/1.jpg", "train/2.jpg"].map(str::to_owned);
            let mut places = HashMap::from(keys.map(|key| (key, place())));
            relabel(&mut places, &file, "data").map(|()| {
                let mut said: Vec<_> = places
                    .into_iter()
                    .map(|(key, place)| (key, place.part, place.label))
                    .collect();
                said.sort();
                said
            })
        };
        let said = |number: u32, part, label: Option<&str>| {
            (format!("train/{number}.jpg"), part, label.map(str::to_owned))
        };
        let by_place = relabeled("file,label\ntrain/1.jpg,x\nother.jpg,y\n").unwrap();
        assert_eq!(
            by_place,
            [said(1, Some(Part::Train), Some("x")), said(2, None, None)]
        );
        let by_column = relabeled("file,label,split\ntrain/1.jpg,x,val\ntrain/2.jpg,y,test\n").unwrap();
        assert_eq!(
            by_column,
            [
                said(1, Some(Part::Validation), Some("x")),
                said(2, Some(Part::Test), Some("y"))
            ]
        );
        let error = relabeled("file,label\n1.jpg,x\n2.jpg,y\n").unwrap_err();
        assert!(error.to_string().contains("relative to the data root"), "{error}");
    }
}
