//! Runs every fuzz target on seeds and mutations. If `FROSTLINE_FUZZ_SECONDS` is set, each target runs for
//! this time with a new seed. If `FROSTLINE_FUZZ_SEEDS` is set, the seeds are also written to this folder for
//! libFuzzer.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use frostline_fuzz::{Mutator, TARGETS, Target};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Maximum size of a committed corpus in bytes.
const CORPUS_BYTES: usize = 1 << 20;

/// Default seed of the mutator.
const START: u64 = 4;

#[test]
fn onnx_reader() {
    exercise("onnx_reader");
}

#[test]
fn image_decoder() {
    exercise("image_decoder");
}

#[test]
fn key_scoping() {
    exercise("key_scoping");
}

#[test]
fn request_head() {
    exercise("request_head");
}

#[test]
fn request_parser() {
    exercise("request_parser");
}

#[test]
fn upload_validation() {
    exercise("upload_validation");
}

#[test]
fn shard_index() {
    exercise("shard_index");
}

#[test]
fn wire_reader() {
    exercise("wire_reader");
}

#[test]
fn every_target_is_exercised_and_has_its_binary() {
    let binaries = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("libfuzzer/fuzz_targets");
    let mut found: Vec<String> = std::fs::read_dir(binaries)
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    found.sort();
    let mut targets: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    targets.sort_unstable();
    assert_eq!(found, targets);
    assert_eq!(
        targets,
        [
            "image_decoder",
            "key_scoping",
            "model_run",
            "onnx_reader",
            "request_head",
            "request_parser",
            "shard_index",
            "upload_validation",
            "wire_reader"
        ]
    );
}

#[test]
fn every_target_has_a_small_corpus() {
    for target in TARGETS {
        let corpus = target.corpus().unwrap();
        let bytes: usize = corpus.iter().map(Vec::len).sum();
        assert!(
            !corpus.is_empty() && bytes < CORPUS_BYTES,
            "{}: {bytes} bytes",
            target.name
        );
    }
}

fn exercise(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let mut seeds = (target.seeds)();
    assert!(!seeds.is_empty());
    seeds.extend(target.corpus().unwrap_or_default());
    if let Some(folder) = std::env::var_os("FROSTLINE_FUZZ_SEEDS") {
        write_seeds(&seeds, PathBuf::from(folder).join(name));
    }
    seeds.iter().for_each(|seed| run(target, seed));
    let Some(seconds) = std::env::var("FROSTLINE_FUZZ_SECONDS").ok() else {
        let mut mutator = Mutator::new(START);
        return (0..target.mutations).for_each(|_| run(target, &mutator.next(&seeds)));
    };
    let end = Instant::now()
        + Duration::from_secs(
            seconds
                .parse()
                .expect("FROSTLINE_FUZZ_SECONDS must be a number of seconds"),
        );
    let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut mutator = Mutator::new(start);
    let mut inputs = 0_u64;
    while Instant::now() < end {
        run(target, &mutator.next(&seeds));
        inputs += 1;
    }
    println!("{name}: {inputs} inputs from {start}");
}

/// Runs a target. Saves the input for a regression test if the target fails.
fn run(target: &Target, input: &[u8]) {
    if let Err(panic) = std::panic::catch_unwind(|| (target.run)(input)) {
        let file = std::env::temp_dir().join(format!("frostline-{}-{}", target.name, std::process::id()));
        std::fs::write(&file, input).unwrap();
        eprintln!(
            "{} failed on {} bytes, saved to {}",
            target.name,
            input.len(),
            file.display()
        );
        std::panic::resume_unwind(panic);
    }
}

fn write_seeds(seeds: &[Vec<u8>], folder: PathBuf) {
    std::fs::create_dir_all(&folder).unwrap();
    for (index, seed) in seeds.iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{index:03}")), seed).unwrap();
    }
}

mod long {
    use super::*;

    #[test]
    fn model_run() {
        exercise("model_run");
    }
}
