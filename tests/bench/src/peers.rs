//! Runs the same fine-tuning in PyTorch on the trainer's core with the same S3 server and link. Two variants:
//! a DataLoader, and features extracted once to the bucket before training.

use crate::legs::leg;
use crate::networks::short;
use crate::package::Package;
use crate::planner::Plan;
use crate::report::{Report, geometric_mean, quantile};
use crate::reuse;
use crate::rig::Rig;
use crate::run::{last_object, number, text};
use crate::trainer::Trainer;
use crate::training::torch;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Scope of the measurements.
struct Extent {
    links: &'static [f64],
    /// Counted steps of Frostline.
    steps: u64,
    /// Total steps of the DataLoader.
    loader_steps: usize,
    /// Number of batches to extract features from. Large enough to make start and end insignificant.
    extracted: usize,
}

const QUICK: Extent = Extent {
    links: &[50.0],
    steps: 6,
    loader_steps: 14,
    extracted: 6,
};
const FULL: Extent = Extent {
    links: &[20.0, 100.0, 500.0],
    steps: 10,
    loader_steps: 20,
    extracted: 12,
};

/// Passes over the extracted features, which share the cost of extracting and writing.
const EPOCHS: usize = 5;

/// Data workers for a DataLoader. PyTorch's documentation recommends a worker per core; with two, reading and
/// decoding overlap.
const WORKERS: [&str; 2] = ["1", "2"];

/// Seconds per iteration of each side.
struct Compared {
    ours: f64,
    loader: f64,
    extracted: f64,
}

/// Parts that can run separately: steps in steady state, and whole jobs with a feature cache.
pub(crate) const PARTS: [&str; 2] = ["steps", "jobs"];

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let python = torch(&["--vision"])?;
    let rig = Rig::open(report)?;
    if report.has("steps") {
        steps(report, &rig, &python)?;
    }
    if report.has("jobs") {
        reuse::run(report, &rig, &python)?;
    }
    Ok(())
}

fn steps(report: &mut Report, rig: &Rig, python: &Path) -> Result<()> {
    let extent = if report.quick() { QUICK } else { FULL };
    println!(
        "PyTorch with one thread and 1 or 2 data workers (the faster number); features extracted once for {} batches, then {EPOCHS} epochs\n",
        extent.extracted
    );
    println!(
        "{:<12} {:>6} {:>5}  {:<40} {:>9} {:>11} {:>9} {:>13} {:>9}",
        "network", "Mbit/s", "batch", "split", "s", "PyTorch s", "ratio", "extract once", "ratio"
    );
    let mut all = Vec::new();
    let names = rig.grid.extent(report).networks;
    rig.each(report, &names, |report, trainer| {
        all.extend(network(report, trainer, &extent, python)?);
        Ok(())
    })?;
    let loader: Vec<f64> = all.iter().map(|one| one.loader / one.ours).collect();
    let extracted: Vec<f64> = all.iter().map(|one| one.extracted / one.ours).collect();
    report.set("speedup_vs_pytorch_geomean", geometric_mean(&loader));
    report.set("speedup_vs_pytorch_min", quantile(&loader, 0.0));
    report.set("speedup_vs_extract_once_geomean", geometric_mean(&extracted));
    report.set("extract_once_epochs", EPOCHS);
    if !all.is_empty() {
        println!(
            "\nspeed-up over PyTorch: geometric mean {:.2}, minimum {:.2}; over extracting once {:.2}",
            geometric_mean(&loader),
            quantile(&loader, 0.0),
            geometric_mean(&extracted)
        );
    }
    Ok(())
}

fn network(
    report: &mut Report,
    trainer: &mut Trainer<'_>,
    extent: &Extent,
    python: &Path,
) -> Result<Vec<Compared>> {
    let network = trainer.network().clone();
    let mut all = Vec::new();
    for mbit in extent.links {
        trainer.tiers().link().hold(Some(*mbit))?;
        let plan = Plan::ask(trainer, &network.candidates(report.quick()))?;
        let legs = [leg(&plan.split, plan.encoding, extent.steps, plan.flow())];
        let times = trainer.time(&legs, plan.flow())?;
        let peer = Peer { trainer, python };
        let compared = Compared {
            ours: times.first().context("the rehearsal timed no leg")?.seconds,
            loader: peer.loader(extent.loader_steps)?,
            extracted: peer.extracted(extent.extracted)?,
        };
        let Compared {
            ours,
            loader,
            extracted,
        } = compared;
        let (name, split) = (&network.name, plan.split.to_string());
        println!(
            "{name:<12} {mbit:>6} {:>5}  {:<40} {ours:>9.3} {loader:>11.3} {:>9.2} {extracted:>13.3} {:>9.2}",
            trainer.batch(),
            short(&split),
            loader / ours,
            extracted / ours
        );
        report.set(&format!("{name}_{mbit}mbit_speedup_vs_pytorch"), loader / ours);
        report.set(
            &format!("{name}_{mbit}mbit_speedup_vs_extract_once"),
            extracted / ours,
        );
        all.push(compared);
    }
    Ok(all)
}

/// Results of the Python package's loop.
pub(crate) struct PushedDown {
    /// Median seconds per iteration in the first epoch.
    pub(crate) first: f64,
    /// Median seconds per iteration in the last epoch.
    pub(crate) later: f64,
    /// The planned split.
    pub(crate) split: String,
}

/// Runs the scripts in `peers/` on the trainer's core.
pub(crate) struct Peer<'a> {
    pub(crate) trainer: &'a Trainer<'a>,
    pub(crate) python: &'a Path,
}

impl Peer<'_> {
    /// Returns the seconds per iteration with a DataLoader.
    pub(crate) fn loader(&self, steps: usize) -> Result<f64> {
        let steps = steps.to_string();
        let with = |workers: &str| {
            let arguments = ["--steps", &steps, "--workers", workers];
            self.last("dataloader.py", &arguments, "iteration_seconds_median")
        };
        let [one, two] = WORKERS;
        Ok(with(one)?.min(with(two)?))
    }

    fn extracted(&self, batches: usize) -> Result<f64> {
        let (batches, epochs) = (batches.to_string(), EPOCHS.to_string());
        let arguments = ["--steps", &batches, "--epochs", &epochs];
        self.last("extract_once.py", &arguments, "iteration_seconds")
    }

    /// Returns the seconds of a job that extracts all photos once into memory and then trains for this many
    /// epochs.
    pub(crate) fn whole_from_memory(&self, epochs: u32) -> Result<f64> {
        let epochs = epochs.to_string();
        self.last("extract_once.py", &["--memory", "--epochs", &epochs], "seconds")
    }

    /// Runs the Python package's loop with frozen layers in `precision`. Later epochs read cached features.
    pub(crate) fn pushed_down(&self, package: &Package, precision: &str) -> Result<PushedDown> {
        let host = self.trainer.host();
        let (url, features) = (host.url(), tempfile::tempdir()?);
        let token = text(host.token_file())?;
        let arguments = [
            "--host",
            &url,
            "--token-file",
            token,
            "--prefix-precision",
            precision,
        ];
        let mut command = self.script("pushdown.py", &arguments)?;
        command
            .env("XDG_CACHE_HOME", self.trainer.cache())
            .env_remove("FROSTLINE_FEATURE_CACHE")
            .env("FROSTLINE_FEATURE_FOLDER", features.path());
        let last = last_object(package.add_to_environment(&mut command)?)?;
        let split = last.get("split").and_then(Value::as_str).unwrap_or_default();
        Ok(PushedDown {
            first: number(&last, "iteration_seconds_median")?,
            later: number(&last, "later_iteration_seconds_median")?,
            split: split.to_owned(),
        })
    }

    /// Runs a script and returns the number under `key` in the last line of the output.
    fn last(&self, script: &str, arguments: &[&str], key: &str) -> Result<f64> {
        number(&last_object(&mut self.script(script, arguments)?)?, key)
    }

    /// Creates a command for a script, with the arguments that all scripts share.
    fn script(&self, script: &str, arguments: &[&str]) -> Result<Command> {
        let tiers = self.trainer.tiers();
        let root = tiers.data().trim_start_matches("s3://");
        let (bucket, prefix) = root
            .split_once('/')
            .context("the data root must be s3://<bucket>/<prefix>")?;
        let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "peers", script].iter().collect();
        let mut command = Command::new(self.python);
        command
            .arg(text(&path)?)
            .args([
                "--endpoint",
                &tiers.store_url(),
                "--bucket",
                bucket,
                "--prefix",
                prefix,
            ])
            .args(["--network", &self.trainer.network().name])
            .args(["--batch", &self.trainer.batch().to_string(), "--threads", "1"])
            .args(arguments)
            .envs(tiers.store_access());
        Ok(command)
    }
}
