//! The demo: fine-tunes the bundled network twice on photos behind a slow link. The first job runs without
//! Frostline's pushdown and cache, so every photo crosses the link in every epoch; the second job uses
//! Frostline's defaults.

use crate::ort;
use crate::workspace::{self, SHARED_BUILD, cargo, output, root, target};
use anyhow::{Context, Result, bail};
use frostline_e2e::{HostProcess, Link};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Rate of the link in Mbit/s in each direction. Transferring the photos of an epoch (32 MB) takes 6.5 s.
const LINK_MBIT: u64 = 40;
const EPOCHS: usize = 6;

/// Builds the command, prepares the photos and runs the job both ways.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if !arguments.is_empty() {
        bail!("unexpected arguments; usage: cargo xtask demo");
    }
    eprintln!("demo: building frostline; the first build compiles about 500 crates in a few minutes");
    build()?;
    let library = ort::ensure()?;
    let demo = Demo::new(library)?;
    let host = HostProcess::start(&demo.binary, &demo.folder, &path(&demo.photos)?, &[])
        .context("cannot start the host; see the output above")?;
    let link = Link::open(host.address(), Some(LINK_MBIT * 1_000_000))?;
    eprintln!("demo: job 1 of 2, all photos over a link of {LINK_MBIT} Mbit/s in every epoch");
    let streamed = demo.train(
        &host,
        &link,
        "streamed",
        &["--split", "none", "--feature-cache", "off"],
    )?;
    eprintln!("demo: job 2 of 2, Frostline plans the split and caches features");
    let features = path(&demo.folder.join("features"))?;
    let planned = demo.train(&host, &link, "planned", &["--feature-folder", &features])?;
    let report = demo.report(&streamed, &planned)?;
    show(&demo, &streamed, &planned, &report);
    Ok(())
}

fn build() -> Result<()> {
    let programs = ["--bin", "frostline", "--bin", "enlarge-photos"];
    workspace::run(cargo().arg("build").args(SHARED_BUILD).args(programs))
}

struct Demo {
    binary: PathBuf,
    library: PathBuf,
    model: PathBuf,
    photos: PathBuf,
    folder: PathBuf,
}

impl Demo {
    /// Empties `target/demo`, except the enlarged photos.
    fn new(library: PathBuf) -> Result<Self> {
        let folder = target().join("demo");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let bundled = root().join("models/zoo/demo");
        let photos = target().join("photos");
        eprintln!("demo: enlarging the bundled photos to 110 kB, the average of ImageNet");
        workspace::run(
            Command::new(target().join("debug/enlarge-photos"))
                .arg(bundled.join("photos"))
                .arg(&photos),
        )?;
        Ok(Self {
            binary: target().join("debug/frostline"),
            library,
            model: bundled.join("backbone.onnx"),
            photos,
            folder,
        })
    }

    /// Runs a job over the link and collects its events. Prints a line for each epoch.
    fn train(&self, host: &HostProcess, link: &Link, name: &str, flags: &[&str]) -> Result<Job> {
        let start = Instant::now();
        let mut child = Command::new(&self.binary)
            .args([
                "train", "--json", "--freeze", "features", "--batch", "32", "--lr", "0.05",
            ])
            .args([
                "--epochs",
                &EPOCHS.to_string(),
                "--host",
                &link.url(),
                "--token-file",
            ])
            .arg(host.token_file())
            .args(["--data", &path(&self.photos)?, "--model", &path(&self.model)?])
            .args(["--out", &path(&self.folder.join(format!("{name}.onnx")))?])
            .args(["--runs", &path(&self.folder.join("runs"))?])
            .args(flags)
            .env("ORT_DYLIB_PATH", &self.library)
            .env_remove("FROSTLINE_FEATURE_CACHE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start frostline")?;
        let mut job = Job::default();
        for line in BufReader::new(child.stdout.take().context("frostline has no output")?).lines() {
            let event = serde_json::from_str(&line?).context("frostline printed invalid JSON")?;
            job.add_event(&event, start.elapsed());
        }
        if !child.wait()?.success() {
            bail!("cannot complete the job; fix the error above and run `cargo xtask demo` again");
        }
        job.seconds = start.elapsed().as_secs_f64();
        Ok(job)
    }

    /// Writes the report that compares both jobs and returns its path.
    fn report(&self, streamed: &Job, planned: &Job) -> Result<PathBuf> {
        let file = self.folder.join("report.html");
        output(
            Command::new(&self.binary)
                .args(["report", &streamed.folder, &planned.folder, "--out"])
                .arg(&file),
        )?;
        Ok(file)
    }
}

/// Measurements from the events of a job.
#[derive(Default)]
struct Job {
    /// Path of the run folder as reported by the job.
    folder: String,
    split: String,
    /// Seconds spent on measuring the link, the trainer and the host, and on planning. Hosts store their
    /// measurements for later jobs.
    measuring: f64,
    /// Time since the start of the job at which measuring began.
    measuring_since: Option<Duration>,
    /// Validation before the first step.
    baseline: PhaseCost,
    epochs: Vec<PhaseCost>,
    /// Duration of the whole process.
    seconds: f64,
    bytes: f64,
    accuracy: f64,
}

/// Seconds, and bytes that the trainer received.
#[derive(Default, Clone, Copy)]
struct PhaseCost {
    seconds: f64,
    bytes: f64,
}

impl Job {
    fn add_event(&mut self, event: &Value, at: Duration) {
        let number = |name: &str| event.get(name).and_then(Value::as_f64).unwrap_or_default();
        let text = |name: &str| {
            let value = event.get(name).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let part = PhaseCost {
            seconds: number("seconds"),
            bytes: number("bytes_received"),
        };
        match event.get("event").and_then(Value::as_str) {
            Some("run") => self.folder = text("folder"),
            Some("measuring") if self.measuring_since.is_none() => {
                eprintln!("demo:   measuring the link, the trainer and the host");
                self.measuring_since = Some(at);
            }
            Some("split") => {
                self.split = text("split");
                let since = self.measuring_since.unwrap_or(at);
                self.measuring = (at - since).as_secs_f64();
            }
            Some("baseline") => self.baseline = part,
            Some("epoch") => {
                self.epochs.push(part);
                let accuracy = number("validation_accuracy") * 100.0;
                eprintln!(
                    "demo:   epoch {} of {EPOCHS}: {:.2} s, {}, validation accuracy {accuracy:.1} %",
                    self.epochs.len(),
                    part.seconds,
                    megabytes(part.bytes),
                );
            }
            Some("done") => {
                self.accuracy = number("validation_accuracy");
                self.bytes = number("bytes_received");
            }
            _ => {}
        }
    }

    /// Returns the sum of the first epoch and the preceding validation. Both sides read every photo for the
    /// first time in this period.
    fn first_epoch(&self) -> PhaseCost {
        let epoch = self.epochs.first().copied().unwrap_or_default();
        PhaseCost {
            seconds: self.baseline.seconds + epoch.seconds,
            bytes: self.baseline.bytes + epoch.bytes,
        }
    }

    /// Mean of the later epochs.
    fn mean_later_epoch(&self) -> PhaseCost {
        let later = self.epochs.get(1..).unwrap_or_default();
        let count = later.len().max(1) as f64;
        PhaseCost {
            seconds: later.iter().map(|epoch| epoch.seconds).sum::<f64>() / count,
            bytes: later.iter().map(|epoch| epoch.bytes).sum::<f64>() / count,
        }
    }

    fn total(&self) -> PhaseCost {
        PhaseCost {
            seconds: self.seconds,
            bytes: self.bytes,
        }
    }
}

fn show(demo: &Demo, streamed: &Job, planned: &Job, report: &Path) {
    let model = relative_path(&demo.model);
    let photos = relative_path(&demo.photos);
    println!("\nFrostline: {model} fine-tuned on {photos}, {EPOCHS} epochs over {LINK_MBIT} Mbit/s\n");
    println!(
        "                     photos over the link        Frostline (split at '{}')",
        planned.split
    );
    print_row("first epoch", streamed.first_epoch(), planned.first_epoch());
    print_row(
        "later epochs, each",
        streamed.mean_later_epoch(),
        planned.mean_later_epoch(),
    );
    print_row("whole job", streamed.total(), planned.total());
    println!(
        "  accuracy           {:>8.1} %                   {:>8.1} %",
        streamed.accuracy * 100.0,
        planned.accuracy * 100.0,
    );
    println!(
        "\nThe whole job includes {:.1} s of measuring the link, the trainer and the host, which later jobs reuse.",
        planned.measuring,
    );
    println!("Report with both jobs: {}", report.display());
    println!("\nNext:");
    println!("  export PATH=\"$PWD/target/debug:$PATH\"");
    println!("  frostline model show {model}     # cuts of the network");
    println!(
        "  frostline plan --model {model} --data {photos} --freeze features --link-bytes-per-second 2500000"
    );
    println!("  cargo xtask test                                  # the tests");
}

fn print_row(name: &str, streamed: PhaseCost, planned: PhaseCost) {
    println!(
        "  {name:<18} {:>8.2} s {:>12}      {:>8.2} s {:>12}   {:>5.1}x faster, {}",
        streamed.seconds,
        megabytes(streamed.bytes),
        planned.seconds,
        megabytes(planned.bytes),
        streamed.seconds / planned.seconds.max(0.001),
        fewer(streamed.bytes, planned.bytes),
    );
}

fn fewer(streamed: f64, planned: f64) -> String {
    if planned == 0.0 {
        return "no bytes".to_owned();
    }
    format!("{:.0}x fewer bytes", streamed / planned)
}

fn megabytes(bytes: f64) -> String {
    format!("{:.2} MB", bytes / 1e6)
}

/// Formats a path relative to the repository, if it is inside.
fn relative_path(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

fn path(path: &Path) -> Result<String> {
    path.to_str()
        .map(str::to_owned)
        .with_context(|| format!("{} is not UTF-8", path.display()))
}
