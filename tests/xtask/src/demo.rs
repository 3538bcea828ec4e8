//! The demo: fine-tunes the bundled network on photos behind a slow link twice, once without Frostline's pushdown and cache (every photo
//! crosses the link in every epoch) and once as Frostline does it by default.

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

/// Rate of the link in each direction. The photos of an epoch (32 MB) take 6.5 s at this rate.
const LINK_MBIT: u64 = 40;
const EPOCHS: usize = 6;

/// Builds the command, prepares the photos and runs the job both ways.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if !arguments.is_empty() {
        bail!("the demo takes no arguments");
    }
    eprintln!("demo: building frostline; the first build compiles about 500 crates in a few minutes");
    build()?;
    let library = ort::ensure()?;
    let demo = Demo::new(library)?;
    let host = HostProcess::start(&demo.binary, &demo.folder, &path(&demo.photos)?, &[])
        .context("the host did not start; see its output above")?;
    let link = Link::open(host.address(), Some(LINK_MBIT * 1_000_000))?;
    eprintln!("demo: job 1 of 2, every photo crosses a link of {LINK_MBIT} Mbit/s in every epoch");
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
            bail!("the job failed; its error is above, and `cargo xtask demo` starts the demo again");
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

/// Measurements of a job, from its events.
#[derive(Default)]
struct Job {
    /// The folder of the run.
    folder: String,
    split: String,
    /// Seconds of measuring the link, the trainer and the host, and of planning. A host keeps its measurements for later jobs.
    measuring: f64,
    /// When measuring began, since the start of the job.
    measuring_since: Option<Duration>,
    /// The validation before the first step.
    baseline: Part,
    epochs: Vec<Part>,
    /// The whole job, from the start of the process to its end.
    seconds: f64,
    bytes: f64,
    accuracy: f64,
}

/// Seconds, and bytes that the trainer received.
#[derive(Default, Clone, Copy)]
struct Part {
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
        let part = Part {
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

    /// The first epoch with the validation before it, in which each side reads every photo for the first time.
    fn first(&self) -> Part {
        let epoch = self.epochs.first().copied().unwrap_or_default();
        Part {
            seconds: self.baseline.seconds + epoch.seconds,
            bytes: self.baseline.bytes + epoch.bytes,
        }
    }

    /// Mean of the later epochs.
    fn later(&self) -> Part {
        let later = self.epochs.get(1..).unwrap_or_default();
        let count = later.len().max(1) as f64;
        Part {
            seconds: later.iter().map(|epoch| epoch.seconds).sum::<f64>() / count,
            bytes: later.iter().map(|epoch| epoch.bytes).sum::<f64>() / count,
        }
    }

    fn whole(&self) -> Part {
        Part {
            seconds: self.seconds,
            bytes: self.bytes,
        }
    }
}

fn show(demo: &Demo, streamed: &Job, planned: &Job, report: &Path) {
    let model = shown(&demo.model);
    let photos = shown(&demo.photos);
    println!("\nFrostline: {model} fine-tuned on {photos}, {EPOCHS} epochs over {LINK_MBIT} Mbit/s\n");
    println!(
        "                     photos over the link        Frostline (split at '{}')",
        planned.split
    );
    print_row("first epoch", streamed.first(), planned.first());
    print_row("later epochs, each", streamed.later(), planned.later());
    print_row("whole job", streamed.whole(), planned.whole());
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

fn print_row(name: &str, streamed: Part, planned: Part) {
    println!(
        "  {name:<18} {:>8.2} s {:>12}      {:>8.2} s {:>12}   {:>5.1}x faster, {}",
        streamed.seconds,
        megabytes(streamed.bytes),
        planned.seconds,
        megabytes(planned.bytes),
        streamed.seconds / planned.seconds,
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

/// A path below the repository without its prefix.
fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

fn path(path: &Path) -> Result<String> {
    path.to_str()
        .map(str::to_owned)
        .with_context(|| format!("{} is not UTF-8", path.display()))
}
