//! Benchmarks: `cargo xtask bench <name> [--quick]`. Each prints a table and writes
//! `target/bench/<name>.json`: one flat key per figure, and `commit`, `date` and `quick`.

mod accuracy;
mod dataset;
mod decode;
mod dialogue;
mod embedded;
mod engine;
mod few;
mod fleet;
mod fresh;
mod gpu;
mod grid;
mod isolation;
mod legs;
mod loops;
mod networks;
mod operators;
mod overhead;
mod package;
mod peers;
mod photos;
mod planner;
mod prefix;
mod proc_status;
mod python;
mod replan;
mod report;
mod resume;
mod reuse;
mod rig;
mod run;
mod scale;
mod start;
mod tenants;
mod tiers;
mod trainer;
mod training;
mod whole;
mod zoo;

use anyhow::{Result, bail};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use frostline_engine::Device;
use report::Report;
use std::path::PathBuf;

type Benchmark = fn(&mut Report) -> Result<()>;

const BENCHMARKS: &[(&str, &str, Benchmark)] = &[
    (
        "accuracy",
        "accuracy of fine-tuning a pretrained network on real photos, against PyTorch",
        accuracy::run,
    ),
    (
        "dataset",
        "1.28 million object names, as in ImageNet: time and memory to list, split and plan",
        dataset::run,
    ),
    (
        "decode",
        "JPEG decoding against libjpeg-turbo, with DCT-scaled decoding, and against nvJPEG on a GPU",
        decode::run,
    ),
    (
        "embedded",
        "`pushdown` in Python with a host on this machine: seconds to the first batch, memory, processes, disk space",
        embedded::run,
    ),
    (
        "engine",
        "a host against a bare loop, killed lanes, and lanes that run out of memory",
        engine::run,
    ),
    (
        "gpu",
        "frozen layers on a device by precision and batch, memory, and a whole job, against PyTorch",
        gpu::run,
    ),
    (
        "grid",
        "two tiers: the planned cut against all other cuts and against raw objects",
        grid::run,
    ),
    (
        "isolation",
        "isolation of tenants: hostile behavior, effect on neighbors, tenants per host",
        isolation::run,
    ),
    (
        "operators",
        "time of each admitted operator by element type, for the cost model of admission",
        operators::run,
    ),
    (
        "overhead",
        "throughput with the sandbox, HTTP, Arrow and lanes in child processes, relative to the engine alone",
        overhead::run,
    ),
    (
        "peers",
        "two tiers: the same task in PyTorch over the same link, per step and per job of 20 epochs",
        peers::run,
    ),
    (
        "prefix",
        "frozen layers in int8, f16 and f32: images per second, similarity of activations, accuracy",
        prefix::run,
    ),
    (
        "python",
        "the Python wheel against the Rust client; two tiers: a PyTorch loop fed by an S3 DataLoader and by the wheel",
        python::run,
    ),
    (
        "replan",
        "two tiers: a job whose link or host slows down midway, against the best fixed split",
        replan::run,
    ),
    (
        "resume",
        "jobs with random trainer and host kills: equality of weights, lost time",
        resume::run,
    ),
    (
        "scale",
        "two PyTorch trainers and two hosts: loss difference, speed-up and stalls during restarts; simulated placement on 1,000 hosts",
        scale::run,
    ),
    (
        "start",
        "seconds to the first step of `frostline train` for 100 to 10,000 local photos",
        start::run,
    ),
    (
        "tenants",
        "1 to 32 tenants on a host: memory, failures, fairness, latency and engine batches",
        tenants::run,
    ),
    (
        "training",
        "training steps of the suffixes of eight networks against PyTorch",
        training::run,
    ),
    (
        "zoo",
        "common classifiers: both torch exporters, trainable from the head, the last block, the input; divided in Python",
        zoo::run,
    ),
];

/// Benchmarks that accept `--networks`. Similar constants follow for the other options.
const TAKE_NETWORKS: &[&str] = &["gpu", "grid", "peers", "prefix"];
const TAKE_LINKS: &[&str] = &["grid", "peers"];
const TAKE_PARTS: &[(&str, &[&str])] = &[
    ("accuracy", &accuracy::PARTS),
    ("embedded", &embedded::PARTS),
    ("gpu", &gpu::PARTS),
    ("isolation", &isolation::PARTS),
    ("peers", &peers::PARTS),
    ("prefix", &prefix::PARTS),
    ("tenants", &tenants::PARTS),
    ("training", &training::PARTS),
    ("zoo", &zoo::PARTS),
];
const TAKE_SUFFIXES: &[&str] = &["training"];
const TAKE_DEVICE: &[&str] = &["decode", "gpu"];
const TAKE_SECONDS: &[&str] = &["decode", "gpu", "grid"];

/// Runs a benchmark of Frostline; without a name, lists the benchmarks
#[derive(Debug, Parser)]
#[command(name = "frostline-bench")]
pub(crate) struct Arguments {
    /// The benchmark to run
    name: Option<String>,
    /// Run a shorter version: up to five minutes, up to ten for grid and replan
    #[arg(long)]
    pub(crate) quick: bool,
    /// Folder of photos: `DIR/train/<class>/` and `DIR/validation/<class>/`, or `DIR/<class>/` [default:
    /// data/clothing in FROSTLINE_SHARED if it exists, otherwise the demo's photos]
    #[arg(long, value_name = "DIR", value_parser = folder)]
    pub(crate) photos: Option<PathBuf>,
    /// Networks for gpu, grid, peers and prefix instead of the default ones; `resnet18-int8` is ResNet18 with
    /// its frozen layers in int8
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = networks::named)]
    pub(crate) networks: Vec<String>,
    /// Suffixes of networks for training, instead of the default ones
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = PossibleValuesParser::new(training::SUFFIXES))]
    pub(crate) suffixes: Vec<String>,
    /// Link rates for grid and peers in Mbit/s, instead of the default ones
    #[arg(long, value_name = "RATES", value_delimiter = ',', value_parser = rate)]
    pub(crate) links: Vec<f64>,
    /// Parts of accuracy, embedded, gpu, peers, prefix, tenants, training or zoo to run; the results go to a separate file
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) parts: Vec<String>,
    /// Device for decode and gpu (e.g., cuda:0)
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<Device>,
    /// Seconds after which decode, gpu and grid start no further measurement
    #[arg(long, value_name = "SECONDS")]
    pub(crate) seconds: Option<u64>,
    /// Print each figure as a JSON line as soon as it is measured
    #[arg(long, hide = true)]
    pub(crate) stream: bool,
    /// Run as trainer for the benchmark dataset on the listing at this address
    #[arg(long, value_name = "URL", hide = true)]
    pub(crate) listing: Option<String>,
    /// Run a batch through this network for the benchmark tenants
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) extract: Option<PathBuf>,
    /// Measure the memory of this suffix for the benchmark training
    #[arg(long, value_name = "FILE", hide = true, requires = "dims")]
    pub(crate) step: Option<PathBuf>,
    /// Dimensions of a batch for --step
    #[arg(long, value_name = "SIZES", value_delimiter = ',', hide = true)]
    pub(crate) dims: Vec<usize>,
}

fn folder(text: &str) -> Result<PathBuf, String> {
    let folder = PathBuf::from(text);
    if folder.is_dir() {
        return Ok(folder);
    }
    Err("not a folder".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text
        .parse()
        .ok()
        .filter(|rate: &f64| rate.is_normal() && *rate > 0.0);
    rate.ok_or_else(|| "must be a positive number of Mbit/s".to_owned())
}

/// Checks that the benchmark accepts the given options and parts.
fn check_flags(name: &str, arguments: &Arguments) -> Result<()> {
    for (flag, given, takers) in [
        ("--networks", !arguments.networks.is_empty(), TAKE_NETWORKS),
        ("--links", !arguments.links.is_empty(), TAKE_LINKS),
        ("--suffixes", !arguments.suffixes.is_empty(), TAKE_SUFFIXES),
        ("--device", arguments.device.is_some(), TAKE_DEVICE),
        ("--seconds", arguments.seconds.is_some(), TAKE_SECONDS),
    ] {
        if given && !takers.contains(&name) {
            bail!("{flag} does not apply to {name}, only to {}", takers.join(", "));
        }
    }
    let parts = TAKE_PARTS.iter().find(|(taker, _)| *taker == name);
    let parts = parts.map_or(&[][..], |(_, parts)| *parts);
    if let Some(other) = arguments
        .parts
        .iter()
        .find(|part| !parts.contains(&part.as_str()))
    {
        bail!(
            "unknown part {other:?} for {name} (expected any of [{}])",
            parts.join(", ")
        );
    }
    Ok(())
}

fn main() -> Result<()> {
    let mut given = std::env::args_os().skip(1).peekable();
    let first = given.peek().and_then(|first| first.to_str());
    if first.is_some_and(frostline_isolation::is_simulation) {
        return frostline_isolation::run_simulation(given);
    }
    let arguments = Arguments::parse();
    let Some(name) = &arguments.name else {
        for (name, what, _) in BENCHMARKS {
            println!("{name:<10} {what}");
        }
        return Ok(());
    };
    let Some((name, _, benchmark)) = BENCHMARKS.iter().find(|(known, ..)| known == name) else {
        bail!("unknown benchmark {name:?}; run this program without arguments to list the benchmarks");
    };
    check_flags(name, &arguments)?;
    let mut report = Report::new(name, arguments);
    benchmark(&mut report)?;
    report.write()
}
