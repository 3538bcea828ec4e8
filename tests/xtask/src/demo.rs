//! The demo: fine-tunes the bundled network on the bundled photos twice over a slow link, once with every photo crossing it and once with
//! the frozen layers pushed down.

use crate::ort;
use crate::workspace::{self, cargo, root, target};
use anyhow::{Context, Result, bail};
use frostline_e2e::{HostProcess, Link};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const LINK_MBIT: u64 = 50;
const EPOCHS: u32 = 8;

/// Sets everything up and runs the main job both ways.
pub(crate) fn run(_arguments: &[String]) -> Result<()> {
    let library = ort::ensure()?;
    eprintln!("building frostline (the first build takes some minutes)");
    // Built together with a test, so that cargo selects the same features as for the tests and wasmtime is compiled once for both.
    workspace::run(cargo().args(["build", "--workspace", "--bin", "frostline", "--test", "command"]))?;
    let demo = Demo::new(library)?;
    let host = HostProcess::start(&demo.binary, &demo.folder, &path(&demo.photos)?, &[])
        .context("the host did not start; see its output above")?;
    let link = Link::open(host.address(), Some(LINK_MBIT * 1_000_000))?;

    eprintln!("training with every photo crossing a link of {LINK_MBIT} Mbit/s");
    let plain = demo.train(&host, &link, "none")?;
    eprintln!("training with the frozen layers pushed down");
    // Not `auto`: on one machine pushdown may save nothing, and it would choose `none`.
    let pushed = demo.train(&host, &link, "freeze")?;
    show(&demo, &plain, &pushed);
    Ok(())
}

struct Demo {
    binary: PathBuf,
    library: PathBuf,
    model: PathBuf,
    photos: PathBuf,
    folder: PathBuf,
}

impl Demo {
    fn new(library: PathBuf) -> Result<Self> {
        let folder = target().join("demo");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let bundled = root().join("models/zoo/demo");
        Ok(Self {
            binary: target().join("debug/frostline"),
            library,
            model: bundled.join("backbone.onnx"),
            photos: bundled.join("photos"),
            folder,
        })
    }

    /// Trains with `split` over the link and collects the run's events.
    fn train(&self, host: &HostProcess, link: &Link, split: &str) -> Result<Run> {
        let out = self.folder.join(format!("tuned-{split}.onnx"));
        let mut child = Command::new(&self.binary)
            .args([
                "train",
                "--json",
                "--freeze",
                "features",
                "--batch",
                "32",
                "--lr",
                "0.05",
                "--feature-cache",
                "off",
            ])
            .args([
                "--epochs",
                &EPOCHS.to_string(),
                "--split",
                split,
                "--host",
                &link.url(),
                "--token-file",
            ])
            .arg(host.token_file())
            .args([
                "--data",
                &path(&self.photos)?,
                "--model",
                &path(&self.model)?,
                "--out",
                &path(&out)?,
                "--runs",
                &path(&self.folder.join("runs"))?,
            ])
            .env("ORT_DYLIB_PATH", &self.library)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start frostline")?;
        let mut run = Run::default();
        for line in BufReader::new(child.stdout.take().context("frostline has no output")?).lines() {
            run.add_event(&serde_json::from_str(&line?).context("frostline printed invalid JSON")?);
        }
        if !child.wait()?.success() {
            bail!("frostline train --split {split} failed; see its output above");
        }
        Ok(run)
    }
}

/// What a training run reported.
#[derive(Default)]
struct Run {
    split: String,
    reason: String,
    before: f64,
    after: f64,
    epoch_bytes: Vec<f64>,
    epoch_seconds: Vec<f64>,
    model: String,
}

impl Run {
    fn add_event(&mut self, event: &Value) {
        let number = |name: &str| event.get(name).and_then(Value::as_f64).unwrap_or_default();
        let text = |name: &str| {
            event
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        match event.get("event").and_then(Value::as_str) {
            Some("split") => (self.split, self.reason) = (text("split"), text("reason")),
            Some("baseline") => self.before = number("validation_accuracy"),
            Some("epoch") => {
                self.epoch_bytes.push(number("bytes_received"));
                self.epoch_seconds.push(number("seconds"));
            }
            Some("done") => (self.after, self.model) = (number("validation_accuracy"), text("model")),
            _ => {}
        }
    }
}

fn show(demo: &Demo, plain: &Run, pushed: &Run) {
    let (plain_bytes, pushed_bytes) = (median(&plain.epoch_bytes), median(&pushed.epoch_bytes));
    let (plain_seconds, pushed_seconds) = (median(&plain.epoch_seconds), median(&pushed.epoch_seconds));
    println!();
    println!(
        "Frostline: {} fine-tuned on {}",
        shown(&demo.model),
        shown(&demo.photos)
    );
    println!();
    println!("  split        {} ({})", pushed.split, pushed.reason);
    println!();
    println!("  an epoch over a {LINK_MBIT} Mbit/s link     without pushdown   with pushdown");
    println!(
        "    bytes received                {:>12.1} KB {:>12.1} KB   {:.0}x fewer",
        plain_bytes / 1e3,
        pushed_bytes / 1e3,
        plain_bytes / pushed_bytes
    );
    println!(
        "    seconds                       {plain_seconds:>12.2} s  {pushed_seconds:>12.2} s    {:.1}x the speed",
        plain_seconds / pushed_seconds
    );
    println!(
        "    validation accuracy           {:>12.1} %  {:>12.1} %",
        plain.after * 100.0,
        pushed.after * 100.0
    );
    println!();
    println!(
        "  accuracy     {:.1} % before, {:.1} % after {EPOCHS} epochs",
        pushed.before * 100.0,
        pushed.after * 100.0
    );
    println!("  tuned model  {}", shown(Path::new(&pushed.model)));
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

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
