//! `frostline extract`, which writes the activations of labeled images to a file.

mod check;
mod file;
mod rows;

use crate::arguments::{Extract as Flags, Inputs};
use crate::hints::{Hinted, Step};
use crate::host::{Access, Connection, data_url};
use crate::output::{bytes, print_result};
use crate::reporter::{Reporter, warn};
use crate::train::{model_name, read_model_and_pixels};
use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use check::Check;
use file::{Format, RowFile};
use frostline_client::{
    Fetcher, Hosts, Inquiry, LabelTable, Listing, SampleFiles, Source, Task, UploadKind, content_name,
};
use frostline_engine::library_version;
use frostline_features::{Provenance, Rounding};
use frostline_graph::{GraphError, Model};
use frostline_images::{DecodeLimits, DecodePool};
use frostline_job::{Event, PixelFlags};
use frostline_rows::{Prefetch, PrefetchLimits, RowCache, RowSource, RowsError, SampleBatch};
use frostline_tensor::Tensor;
use frostline_trainer::{Guest, OnBadSample, frozen_up_to, input_pixels, normalized_twice};
use frostline_wire::{ObjectInfo, Split, UploadRef};
use rows::{Rows, SampleAnnotation};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// Limit of open requests per host, like in a job.
const OPEN_REQUESTS: usize = 8;
/// Number of batches to fetch while a batch is written, with a memory limit. Writing is faster than fetching.
const PREFETCH: PrefetchLimits = PrefetchLimits {
    batches: 3,
    bytes: 1 << 30,
};

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

/// Checks that activations can be written to a file of this name, and returns the format.
///
/// # Errors
/// Returns an error if the extension is unknown or the folder cannot be written.
pub(crate) fn check_output(path: &Path) -> Result<Format> {
    let format = Format::from_extension(path)?;
    file::check(path)?;
    Ok(format)
}

/// Writes activations with these keys to a file, without splits and labels. Blocks.
pub(crate) fn write_activations(path: &Path, keys: Vec<&str>, activations: &Tensor) -> Result<()> {
    let shape = activations.shape().dims().get(1..).unwrap_or_default();
    let rows = Rows::new(shape)?;
    let values = values_of(activations)?;
    let mut file = RowFile::create(path, check_output(path)?, rows.schema())?;
    file.write(&rows.batch(keys, values, &HashMap::new())?)?;
    file.finish()
}

pub(crate) async fn run(flags: Flags, json: bool, stop: &CancellationToken) -> Result<()> {
    let asked = ExtractionInput::read(&flags, json)?;
    let connection = Connection::open(Access::from_flags(&flags.host)?, &asked.root, &flags.device).await?;
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

/// Input of an extraction.
struct ExtractionInput {
    /// The data root.
    root: String,
    format: Format,
    name: String,
    layers: Bytes,
    layers_sha256: String,
    cut: String,
    guest: Guest,
    stock_guest: bool,
}

impl ExtractionInput {
    fn read(flags: &Flags, json: bool) -> Result<Self> {
        let format = check_output(&flags.out)?;
        let pixels = flags.pixels.settings()?;
        let (model, cut) = model_and_cut(flags, &pixels)?;
        let mut guest = Guest::read(flags.guest.as_deref(), flags.parameters.as_deref())?;
        pixels.check_excludes_parameters(flags.parameters.as_deref())?;
        // A custom guest without parameters gets no recipe, unless preprocessing flags are set.
        if guest.is_stock() || !pixels.is_empty() {
            let (recipe, source) = input_pixels(&model, &pixels)?;
            guest.parameters = Some(serde_json::to_string(&recipe)?);
            warn(&Event::Pixels { recipe, source }, json);
            if let Some(message) = normalized_twice(&model, &recipe, source) {
                warn(&Event::Warning { message }, json);
            }
        }
        Ok(Self {
            root: data_url(&flags.inputs.data)?,
            format,
            name: model_name(&flags.inputs.model),
            layers: model.slice(None, Some(&cut))?.to_bytes()?.into(),
            layers_sha256: model.layers_sha256(&cut)?,
            cut,
            guest,
            stock_guest: flags.guest.is_none(),
        })
    }

    /// Opens the cache. Returns `None` if the cache is off or cannot be opened, because extraction also works
    /// without a cache.
    fn open_cache(
        &self,
        flags: &Flags,
        source: &Source,
        rows: u64,
        reporter: &Arc<Reporter>,
    ) -> Option<Arc<RowCache>> {
        let cache = flags.cache.open()?;
        let made = Provenance {
            model: self.name.clone(),
            freeze: self.cut.clone(),
            data: self.root.clone(),
            layers: self.layers_sha256.clone(),
            guest: hex::encode(Sha256::digest(&self.guest.bytes)),
            parameters: source.parameters.clone(),
            rounding: Rounding::for_split(flags.encoding, &source.split, &self.cut),
            precision: source.terms.precision,
            fixed_batch: source.terms.fixed_batch,
            library: library_version().unwrap_or_default(),
            device: flags.device.clone(),
            exactly: None,
            shape: source.shape.clone(),
        };
        let told = Arc::clone(reporter);
        let stopped = Arc::new(move |why| told.warning(format!("caching features stopped: {why}")));
        RowCache::open(&cache, made, rows, stopped)
            .inspect_err(|error| reporter.warning(format!("cannot cache features: {error}")))
            .ok()
            .map(Arc::new)
    }

    /// Uploads the guest and the layers, and returns the request settings.
    async fn send(&self, hosts: &Hosts, flags: &Flags) -> Result<Inquiry> {
        let guest = &self.guest;
        let layers = self.layers.clone();
        Ok(Inquiry {
            root: self.root.clone(),
            guest: Some(send(hosts, UploadKind::Guest, &guest.name, guest.bytes.clone()).await?),
            model: Some(send(hosts, UploadKind::Model, &self.name, layers).await?),
            parameters: guest.parameters.clone().unwrap_or_default(),
            encoding: flags.encoding,
            terms: (&flags.terms.settings()?).into(),
            request_samples: flags.request_samples,
        })
    }
}

/// Reads the network. If it has several outputs and the cut is one of them, this output is used.
fn read_model(flags: &Flags, pixels: &PixelFlags) -> Result<Model> {
    let Inputs { model, interface, .. } = &flags.inputs;
    let read = read_model_and_pixels(model, interface, pixels);
    let cut = flags.cut.as_deref().unwrap_or_default();
    match read.as_ref().err().and_then(|error| error.downcast_ref()) {
        Some(GraphError::Outputs { names }) if names.iter().any(|name| name == cut) => {
            read_model_and_pixels(model, &interface.with_output(cut), pixels)
        }
        _ => read,
    }
}

/// Returns the network and the cut. For `output` and for a backbone without a classifier, a linear head is
/// added, and the cut is the input of this head.
fn model_and_cut(flags: &Flags, pixels: &PixelFlags) -> Result<(Model, String)> {
    let model = read_model(flags, pixels)?;
    let network = model.network()?;
    match flags.cut.as_deref() {
        Some(cut) if ["output", &network.output.name].contains(&cut) && network.named(cut).is_err() => {}
        None if network.head.is_none() => {}
        cut => return Ok(frozen_up_to(model, cut)?),
    }
    Ok(frozen_up_to(model.with_linear_head()?, None)?)
}

async fn send(hosts: &Hosts, kind: UploadKind, name: &str, bytes: Bytes) -> Result<UploadRef> {
    let name = content_name(name, &hex::encode(Sha256::digest(&bytes)));
    let sha256 = hosts.push(kind, &name, bytes).await?.sha256;
    Ok(UploadRef { name, sha256 })
}

async fn extract(
    flags: &Flags,
    asked: ExtractionInput,
    hosts: Hosts,
    reporter: &Arc<Reporter>,
) -> Result<Done> {
    let since = Instant::now();
    let (samples, places) = listed(flags, &asked, &hosts, reporter).await?;
    let (remote, cache) = checked(flags, &asked, &hosts, &samples, reporter).await?;
    let shape = remote.source.shape.clone();
    let rows = Rows::new(&shape)?;
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
        tokio::task::block_in_place(|| cache.settle());
        cache
            .take_warnings()
            .into_iter()
            .for_each(|message| reporter.warning(message));
    }
    let Writing {
        file,
        written,
        left_out,
        cached,
        ..
    } = writing;
    tokio::task::block_in_place(|| file.finish())?;
    Ok(Done {
        event: "done",
        out: flags.out.display().to_string(),
        cut: asked.cut,
        shape,
        rows: written,
        cached,
        left_out,
        bytes_received: hosts.bytes_received(),
        seconds: since.elapsed().as_secs_f64(),
    })
}

/// Uploads the guest and the layers, opens the cache, and compares the first activations unless all are cached.
async fn checked(
    flags: &Flags,
    asked: &ExtractionInput,
    hosts: &Hosts,
    samples: &[ObjectInfo],
    reporter: &Arc<Reporter>,
) -> Result<(Remote, Option<Arc<RowCache>>)> {
    let inquiry = asked.send(hosts, flags).await?;
    let source = inquiry.source(hosts, Split::from(asked.cut.as_str())).await?;
    let cache = asked.open_cache(flags, &source, samples.len() as u64, reporter);
    let remote = Remote {
        fetcher: fetcher(flags)?,
        hosts: hosts.clone(),
        source: source.into(),
    };
    if cache
        .as_ref()
        .map_or(0, |cache| cache.count(samples.iter().cloned(), None))
        < samples.len() as u64
    {
        let check = Check {
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

/// Access to activations that are not cached.
struct Remote {
    fetcher: Fetcher,
    hosts: Hosts,
    source: Arc<Source>,
}

impl Remote {
    /// Starts to get the activations of `samples` in batches.
    fn rows(
        &self,
        cache: Option<Arc<RowCache>>,
        samples: &[ObjectInfo],
        batch: usize,
    ) -> Prefetch<SampleBatch, RowsError> {
        let rows = RowSource {
            fetcher: Some(self.fetcher.clone()),
            cache,
        };
        let batches = samples.chunks(batch).map(Arc::from).collect();
        let hosts = self.hosts.clone();
        let source = Arc::clone(&self.source);
        Prefetch::of_samples(rows, PREFETCH, hosts, source, batches)
    }
}

/// Creates the fetcher, with a decoder for each core.
fn fetcher(flags: &Flags) -> Result<Fetcher> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let limits = DecodeLimits::new(flags.host.image_pixels);
    let decoders = DecodePool::start(threads)?.with_limits(limits);
    Ok(Fetcher::new(OPEN_REQUESTS, decoders))
}

/// Returns the samples, and for each key the split and the label from the location or the table.
async fn listed(
    flags: &Flags,
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
    rows: Rows,
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
                return Err(Hinted::wrap(error, vec![Step::set("on_bad_sample", "skip")]));
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
