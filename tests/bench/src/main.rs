//! Benchmarks: `cargo xtask bench <name> [--quick]`. Each prints a table and writes `target/bench/<name>.json`, flat keys
//! beside `commit`, `date` and `quick`.

mod accuracy;
mod codecs;
mod overhead;
mod report;
mod run;
mod study;
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
        "overhead",
        "what the sandbox and the path by HTTP and Arrow cost",
        overhead::run,
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
