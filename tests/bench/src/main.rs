//! Benchmarks: `cargo xtask bench <name> [--quick]`. Each prints a table and writes `target/bench/<name>.json`, flat keys
//! beside `commit`, `date` and `quick`.

mod accuracy;
mod augment;
mod capacity;
mod codecs;
mod dataset;
mod engine;
mod few;
mod fleet;
mod fresh;
mod grid;
mod isolation;
mod legs;
mod loops;
mod networks;
mod overhead;
mod overlap;
mod package;
mod peers;
mod photos;
mod planner;
mod python;
mod reader;
mod replan;
mod report;
mod resume;
mod reuse;
mod rig;
mod run;
mod scale;
mod study;
mod tenants;
mod tiers;
mod trainer;
mod training;
mod transfer;
mod whole;
mod zoo;

use anyhow::{Result, bail};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use report::Report;
use std::path::PathBuf;

type Benchmark = fn(&mut Report) -> Result<()>;

const BENCHMARKS: &[(&str, &str, Benchmark)] = &[
    (
        "accuracy",
        "a trained network on real photos: what fine-tuning reaches, and whether Python agrees",
        accuracy::run,
    ),
    (
        "augment",
        "what augmenting training images costs, decoded by the host and by the trainer",
        augment::run,
    ),
    (
        "capacity",
        "1 to 1,000 hosts, simulated: how even their shares are, what a lost host does, what placing a sample takes",
        capacity::run,
    ),
    (
        "codecs",
        "each encoding: bytes, speed and error at cuts of eight networks, and what it does to accuracy",
        codecs::run,
    ),
    (
        "dataset",
        "1.28 million names of ImageNet's shape: seconds and memory until they are listed, divided and planned",
        dataset::run,
    ),
    (
        "engine",
        "the path through a host against a bare loop, lanes that are killed or run out of memory, a GPU where there is one",
        engine::run,
    ),
    (
        "grid",
        "two tiers: is the planned cut the best one, what do others take, and how much faster is it than raw objects",
        grid::run,
    ),
    (
        "isolation",
        "what tenants can do to a host and to each other, and how many fit",
        isolation::run,
    ),
    (
        "overhead",
        "what the sandbox, the path by HTTP and Arrow, and lanes in processes of their own cost",
        overhead::run,
    ),
    (
        "overlap",
        "two tiers: what each stage does in steady state, and whether losses depend on what travels",
        overlap::run,
    ),
    (
        "peers",
        "two tiers: the same task by PyTorch over the same link, in steps and in jobs of 20 epochs whose frozen layers run once",
        peers::run,
    ),
    (
        "python",
        "rows through the Python wheel against the Rust client; two tiers: the same PyTorch loop fed by an S3 DataLoader and by the wheel",
        python::run,
    ),
    (
        "reader",
        "the host's reader against parallel reads by boto3, of photos in a bucket and of photos in shards",
        reader::run,
    ),
    (
        "replan",
        "two tiers: a job whose link or host slows down midway, against the best fixed split",
        replan::run,
    ),
    (
        "resume",
        "jobs whose trainer and host are killed at random moments: the same weights bit for bit, and the time that is lost",
        resume::run,
    ),
    (
        "scale",
        "two PyTorch trainers and two hosts: equal losses, what the second one brings, and what restarts and deaths of hosts cost",
        scale::run,
    ),
    (
        "study",
        "bytes and compute at every candidate cut of the seven networks, and how well profiles predict",
        study::run,
    ),
    (
        "tenants",
        "1 to 32 tenants on a host: its memory budget, failures, shares, waits, and the batches it chooses",
        tenants::run,
    ),
    (
        "training",
        "training steps of the ends of eight networks against PyTorch",
        training::run,
    ),
    (
        "transfer",
        "each split: bytes, seconds on a free and a slow link, and whether the losses agree",
        transfer::run,
    ),
    (
        "zoo",
        "usual classifiers by both of torch's exporters: which are trained from their head, their last block and their input",
        zoo::run,
    ),
];

/// Those whose networks can be named, and whose links.
const TAKE_NETWORKS: &[&str] = &["grid", "peers"];
const TAKE_LINKS: &[&str] = &["grid", "peers"];
const TAKE_PARTS: &[(&str, &[&str])] = &[
    ("accuracy", &accuracy::PARTS),
    ("peers", &peers::PARTS),
    ("tenants", &tenants::PARTS),
];
const TAKE_SUFFIXES: &[&str] = &["training"];

/// Benchmarks of Frostline; without a name, those there are get listed
#[derive(Debug, Parser)]
#[command(name = "frostline-bench")]
pub(crate) struct Arguments {
    /// Which one
    name: Option<String>,
    /// Be done within five minutes; grid and replan within ten
    #[arg(long)]
    pub(crate) quick: bool,
    /// Photos to measure with: a folder `DIR/train/<class>/` and `DIR/validation/<class>/`, or `DIR/<class>/`; by default those of
    /// the demo, or those that FROSTLINE_SHARED names
    #[arg(long, value_name = "DIR", value_parser = folder)]
    pub(crate) photos: Option<PathBuf>,
    /// Networks that grid and peers measure instead of the usual ones
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = PossibleValuesParser::new(networks::NETWORKS))]
    pub(crate) networks: Vec<String>,
    /// Ends of networks that training measures instead of the usual ones
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = PossibleValuesParser::new(training::SUFFIXES))]
    pub(crate) suffixes: Vec<String>,
    /// Links that grid and the jobs of peers measure instead of the usual ones, in Mbit/s
    #[arg(long, value_name = "RATES", value_delimiter = ',', value_parser = rate)]
    pub(crate) links: Vec<f64>,
    /// Parts of accuracy, peers or tenants to run alone, into a file of their own
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) parts: Vec<String>,
    /// Be the trainer of the benchmark dataset, on the listing at this address
    #[arg(long, value_name = "URL", hide = true)]
    pub(crate) listing: Option<String>,
    /// Be a loop of the benchmark tenants that runs one batch through this network
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) extract: Option<PathBuf>,
}

fn folder(text: &str) -> Result<PathBuf, String> {
    let folder = PathBuf::from(text);
    if folder.is_dir() {
        return Ok(folder);
    }
    Err("it is no folder".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text
        .parse()
        .ok()
        .filter(|rate: &f64| rate.is_normal() && *rate > 0.0);
    rate.ok_or_else(|| "a rate is a positive number of Mbit/s".to_owned())
}

/// What is named to be measured must be what the benchmark measures.
fn check(name: &str, arguments: &Arguments) -> Result<()> {
    for (flag, given, takers) in [
        ("--networks", !arguments.networks.is_empty(), TAKE_NETWORKS),
        ("--links", !arguments.links.is_empty(), TAKE_LINKS),
        ("--suffixes", !arguments.suffixes.is_empty(), TAKE_SUFFIXES),
    ] {
        if given && !takers.contains(&name) {
            bail!("{name} takes no {flag}; {} does", takers.join(", "));
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
            "{name} has no part {other:?}; its parts are [{}]",
            parts.join(", ")
        );
    }
    Ok(())
}

fn main() -> Result<()> {
    let mut given = std::env::args_os().skip(1).peekable();
    let first = given.peek().and_then(|first| first.to_str());
    if first.is_some_and(frostline_isolation::is_part) {
        return frostline_isolation::play(given);
    }
    let arguments = Arguments::parse();
    let Some(name) = &arguments.name else {
        for (name, what, _) in BENCHMARKS {
            println!("{name:<10} {what}");
        }
        return Ok(());
    };
    let Some((name, _, benchmark)) = BENCHMARKS.iter().find(|(known, ..)| known == name) else {
        bail!("there is no benchmark {name:?}; without a name, those there are get listed");
    };
    check(name, &arguments)?;
    let mut report = Report::new(name, arguments);
    benchmark(&mut report)?;
    report.write()
}
