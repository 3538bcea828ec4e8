//! Compares the Python wheel with the Rust client: activations per second for the same samples on the same
//! host, in turns, at the pixels (large rows) and at the freeze cut (small rows). Also measures the size of
//! the wheel, the time from an empty environment to a trained epoch (see `fresh`), and the speed-up of a
//! PyTorch loop (see `loops`).

use crate::dialogue::Dialogue;
use crate::photos::Pretrained;
use crate::report::{Report, median};
use crate::run::{binary, number, text};
use crate::{fresh, loops, package};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use frostline_client::{
    Fetcher, HostClient, Hosts, Inquiry, SampleFiles, Source, Token, UploadKind, content_name,
};
use frostline_e2e::HostProcess;
use frostline_images::DecodePool;
use frostline_rows::{Prefetch, PrefetchLimits, RowSource};
use frostline_trainer::Guest;
use frostline_wire::{Encoding, Layout, ObjectInfo, Split, Terms, UploadRef};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

const BATCH: usize = 64;
/// The wheel's defaults.
const OPEN_REQUESTS: usize = 8;
const REQUEST_SAMPLES: usize = 32;
const AHEAD: PrefetchLimits = PrefetchLimits {
    batches: 3,
    bytes: 1 << 30,
};

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (pretrained, photos) = (Pretrained::find(), report.photos());
    let (folder, data) = (tempfile::tempdir()?, text(photos.root())?.to_owned());
    let host = HostProcess::start(&binary()?, folder.path(), &data, &[])?;
    let ours = runtime.block_on(Ours::open(&host, &data, &pretrained.file))?;
    let mut wheel = Wheel::start(&host, &data, &pretrained.file)?;
    let rounds = if report.quick() { 5 } else { 15 };
    println!(
        "{} samples, batches of {BATCH}, {rounds} rounds\n",
        ours.samples.len()
    );
    println!(
        "{:<12} {:>12} {:>12} {:>8}",
        "", "Rust rows/s", "wheel rows/s", "ratio"
    );
    let mut least = f64::INFINITY;
    for cut in ["input", pretrained.freeze] {
        let source = Arc::new(runtime.block_on(ours.inquiry.source(&ours.hosts, Split::from(cut)))?);
        let (mut rust, mut python) = (Vec::new(), Vec::new());
        for round in 0..=rounds {
            let pair = if round % 2 == 0 {
                let first = runtime.block_on(ours.rate(&source))?;
                (first, wheel.rate(cut, ours.samples.len())?)
            } else {
                let first = wheel.rate(cut, ours.samples.len())?;
                (runtime.block_on(ours.rate(&source))?, first)
            };
            // The first round is a warm-up.
            if round > 0 {
                rust.push(pair.0);
                python.push(pair.1);
            }
        }
        let ratios: Vec<f64> = python
            .iter()
            .zip(&rust)
            .map(|(wheel, rust)| wheel / rust)
            .collect();
        let (rust, python, ratio) = (median(&rust), median(&python), median(&ratios));
        least = least.min(ratio);
        println!("{cut:<12} {rust:>12.1} {python:>12.1} {ratio:>8.3}");
        report.set(&format!("{cut}_rust_rows_per_second"), rust);
        report.set(&format!("{cut}_wheel_rows_per_second"), python);
    }
    report.set("ratio_vs_rust_client", least);
    report.set("import_seconds", wheel.import_seconds);
    report.set("installed_mb", wheel.installed_bytes / 1e6);
    let megabytes = std::fs::metadata(package::wheel()?)?.len() as f64 / 1e6;
    report.set("wheel_mb", megabytes);
    println!(
        "\nimported in {:.3} s; wheel {megabytes:.1} MB, installed {:.1} MB",
        wheel.import_seconds,
        wheel.installed_bytes / 1e6
    );
    drop((wheel, host));
    fresh::run(report)?;
    loops::run(report)
}

struct Ours {
    hosts: Hosts,
    fetcher: Fetcher,
    inquiry: Inquiry,
    samples: Vec<ObjectInfo>,
}

impl Ours {
    async fn open(host: &HostProcess, data: &str, model: &Path) -> Result<Self> {
        let client = HostClient::new(&host.url(), Some(Token::read(host.token_file())?))?;
        let hosts = Hosts::from(client);
        let send = async |kind, name: &str, bytes: Bytes| {
            let sha256 = hosts.push(kind, name, bytes).await?.sha256;
            anyhow::Ok(UploadRef {
                name: name.to_owned(),
                sha256,
            })
        };
        let guest = Guest::stock();
        let guest = send(UploadKind::Guest, &content_name(&guest.name, "rust"), guest.bytes).await?;
        let layers = std::fs::read(model)?.into();
        let model = send(UploadKind::Model, &content_name("model", "rust"), layers).await?;
        let listing = hosts.listing(data, Layout::Auto).await?;
        let samples = listing.placed(SampleFiles::Images);
        let threads = std::thread::available_parallelism()?.get();
        Ok(Self {
            samples: samples.iter().map(|placed| placed.object.into()).collect(),
            hosts,
            fetcher: Fetcher::new(OPEN_REQUESTS, DecodePool::start(threads)?),
            inquiry: Inquiry {
                root: data.to_owned(),
                guest: Some(guest),
                model: Some(model),
                parameters: String::new(),
                encoding: Encoding::F32,
                terms: Terms::default(),
                request_samples: REQUEST_SAMPLES,
            },
        })
    }

    /// Extracts all samples once and returns the rows per second.
    async fn rate(&self, source: &Arc<Source>) -> Result<f64> {
        let since = Instant::now();
        let batches = self.samples.chunks(BATCH).map(Arc::from).collect();
        let source_of_rows = RowSource {
            fetcher: Some(self.fetcher.clone()),
            cache: None,
        };
        let hosts = self.hosts.clone();
        let source = Arc::clone(source);
        let mut pass = Prefetch::of_samples(source_of_rows, AHEAD, hosts, source, batches);
        let mut rows = 0;
        while let Some(batch) = pass.next().await {
            rows += batch?.fetched.indices.len();
        }
        ensure!(
            rows == self.samples.len(),
            "received {rows} of {} rows",
            self.samples.len()
        );
        Ok(rows as f64 / since.elapsed().as_secs_f64())
    }
}

/// A Python process with the wheel, which extracts rows on request.
struct Wheel {
    dialogue: Dialogue,
    import_seconds: f64,
    installed_bytes: f64,
}

impl Wheel {
    fn start(host: &HostProcess, data: &str, model: &Path) -> Result<Self> {
        let python = std::env::var_os("FROSTLINE_WHEEL_PYTHON").context(
            "FROSTLINE_WHEEL_PYTHON is not set; run this benchmark with `cargo xtask bench python`",
        )?;
        let script = frostline_e2e::repository().join("tests/bench/peers/wheel_rows.py");
        let mut command = Command::new(python);
        command
            .arg(script)
            .args([host.url().as_str(), text(host.token_file())?, data, text(model)?])
            .arg(BATCH.to_string());
        let mut dialogue = Dialogue::start(&mut command)?;
        let itself: Value = dialogue.answer()?;
        Ok(Self {
            dialogue,
            import_seconds: number(&itself, "import_seconds")?,
            installed_bytes: number(&itself, "installed_bytes")?,
        })
    }

    /// Extracts all samples once and returns the rows per second.
    fn rate(&mut self, cut: &str, samples: usize) -> Result<f64> {
        let done: Value = self.dialogue.ask(json!({ "cut": cut }))?;
        let rows = number(&done, "rows")?;
        ensure!(rows == samples as f64, "received {rows} of {samples} rows");
        Ok(rows / number(&done, "seconds")?)
    }
}
