//! Benchmarks: `cargo xtask bench <name> [--quick]`. Each prints a table and writes `target/bench/<name>.json`, flat keys
//! beside `commit`, `date` and `quick`.

mod accuracy;
mod codecs;
mod grid;
mod networks;
mod overhead;
mod overlap;
mod peers;
mod planner;
mod replan;
mod report;
mod run;
mod splits;
mod study;
mod tiers;
mod trainer;
mod training;
mod transfer;

use anyhow::{Result, bail};
use report::Report;

type Benchmark = fn(&mut Report) -> Result<()>;

const BENCHMARKS: &[(&str, &str, Benchmark)] = &[
    (
        "accuracy",
        "SqueezeNet on real photos: what fine-tuning reaches, and whether Python agrees",
        accuracy::run,
    ),
    (
        "codecs",
        "each encoding: bytes, speed and error at cuts of eight networks, and what it does to accuracy",
        codecs::run,
    ),
    (
        "grid",
        "two tiers: is the planned cut the best one, and how much faster is it than raw objects",
        grid::run,
    ),
    (
        "overhead",
        "what the sandbox and the path by HTTP and Arrow cost",
        overhead::run,
    ),
    (
        "overlap",
        "two tiers: what each stage does in steady state, and whether losses depend on what travels",
        overlap::run,
    ),
    (
        "peers",
        "two tiers: the same task by PyTorch over the same link",
        peers::run,
    ),
    (
        "replan",
        "two tiers: a job whose link or host slows down midway, against the best fixed split",
        replan::run,
    ),
    (
        "splits",
        "two tiers: the time at every cut relative to the freeze cut",
        splits::run,
    ),
    (
        "study",
        "bytes and compute at every candidate cut of the seven networks, and how well profiles predict",
        study::run,
    ),
    (
        "training",
        "a training step of ResNet18's last block against PyTorch",
        training::run,
    ),
    (
        "transfer",
        "each split: bytes, seconds on a free and a slow link, and whether the losses agree",
        transfer::run,
    ),
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let Some(name) = arguments.iter().find(|argument| !argument.starts_with("--")) else {
        for (name, what, _) in BENCHMARKS {
            println!("{name:<10} {what}");
        }
        return Ok(());
    };
    let Some((name, _, benchmark)) = BENCHMARKS.iter().find(|(known, ..)| known == name) else {
        bail!("there is no benchmark {name:?}; without a name, those there are get listed");
    };
    let mut report = Report::new(name, quick);
    benchmark(&mut report)?;
    report.write()
}
