//! Runs the fuzz targets of `tests/fuzz`: with libFuzzer if a nightly compiler and cargo-fuzz are installed, else with plain mutations.

use crate::workspace::{self, cargo, root, target};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Command, Stdio};

/// Default duration of each target, in seconds.
const SECONDS: u64 = 30;
/// libFuzzer's limits per input: memory in MiB, seconds, bytes.
const LIMITS: [&str; 3] = ["-rss_limit_mb=2048", "-timeout=10", "-max_len=65536"];

/// Maximum size of a committed corpus in bytes, with the headers of the archive.
const CORPUS_BYTES: u64 = 512 << 10;
/// Header and mean padding per file of an archive, in bytes.
const HEADER_BYTES: u64 = 768;

/// Arguments of `cargo xtask fuzz`.
struct Arguments {
    /// Duration of each target.
    seconds: u64,
    /// True if the corpus found by libFuzzer replaces the committed one.
    keep: bool,
    targets: Vec<String>,
}

/// `cargo xtask fuzz [--seconds N] [--keep] [target..]`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let Arguments {
        seconds,
        keep,
        targets: names,
    } = parse(arguments)?;
    let known = targets()?;
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        bail!(
            "unknown fuzz target {unknown:?}; the targets are {}",
            known.join(", ")
        );
    }
    let names = if names.is_empty() { known } else { names };
    if !has_libfuzzer() {
        if keep {
            bail!("--keep needs libFuzzer: install a nightly compiler and cargo-fuzz");
        }
        eprintln!("no nightly compiler with cargo-fuzz: using plain mutations, {seconds} s per target");
        return names
            .iter()
            .try_for_each(|name| run_as_test(name, "FROSTLINE_FUZZ_SECONDS", &seconds.to_string()));
    }
    let folder = target().join("fuzz");
    for name in names {
        let seeds = folder.join("seeds");
        run_as_test(&name, "FROSTLINE_FUZZ_SEEDS", &seeds.to_string_lossy())?;
        let corpus = folder.join("corpus").join(&name);
        std::fs::create_dir_all(&corpus).with_context(|| format!("cannot create {}", corpus.display()))?;
        let mut command = libfuzzer("run", &name, &corpus);
        command.arg(seeds.join(&name)).arg("--");
        command.arg(format!("-max_total_time={seconds}")).args(LIMITS);
        workspace::run(&mut command)?;
        if keep {
            workspace::run(libfuzzer("cmin", &name, &corpus).arg("--").args(LIMITS))?;
            pack(&name, &corpus)?;
        }
    }
    Ok(())
}

/// Returns a subcommand of `cargo fuzz` for a target with a corpus.
fn libfuzzer(subcommand: &str, name: &str, corpus: &Path) -> Command {
    let mut command = nightly();
    command.args([subcommand, "--fuzz-dir", "tests/fuzz/libfuzzer", "--target-dir"]);
    command.arg(target().join("fuzz/build")).arg(name).arg(corpus);
    command
}

/// Writes the smallest inputs of a corpus to the archive in the repository.
fn pack(name: &str, corpus: &Path) -> Result<()> {
    let mut inputs = Vec::new();
    for entry in std::fs::read_dir(corpus)? {
        let entry = entry?;
        inputs.push((entry.metadata()?.len(), entry.file_name()));
    }
    inputs.sort_unstable();
    let mut bytes = 0;
    inputs.retain(|(length, _)| {
        bytes += length + HEADER_BYTES;
        bytes < CORPUS_BYTES
    });
    let archive = root().join(format!("tests/fuzz/corpus/{name}.tar"));
    let mut tar = Command::new("tar");
    // The same inputs always create the same archive.
    tar.args([
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mode=0644",
        "--mtime=@0",
        "--create",
        "--file",
    ]);
    tar.arg(archive).arg("--directory").arg(corpus);
    workspace::run(tar.args(inputs.into_iter().map(|(_, name)| name)))
}

fn parse(arguments: &[String]) -> Result<Arguments> {
    let mut parsed = Arguments {
        seconds: SECONDS,
        keep: false,
        targets: Vec::new(),
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--seconds" => {
                let number = rest.next().context("--seconds needs a number")?;
                parsed.seconds = number
                    .parse()
                    .with_context(|| format!("invalid number {number:?} for --seconds"))?;
            }
            "--keep" => parsed.keep = true,
            flag if flag.starts_with('-') => {
                bail!("unknown flag {flag:?}; usage: cargo xtask fuzz [--seconds N] [--keep] [TARGET..]")
            }
            name => parsed.targets.push(name.to_owned()),
        }
    }
    Ok(parsed)
}

/// Returns the names of the targets, sorted.
fn targets() -> Result<Vec<String>> {
    let folder = root().join("tests/fuzz/libfuzzer/fuzz_targets");
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort_unstable();
    Ok(names)
}

/// Runs a target as an ordinary test with an environment variable set.
fn run_as_test(name: &str, setting: &str, value: &str) -> Result<()> {
    let mut command = cargo();
    command.args(["test", "--workspace", "--test", "fuzz", "--", "--nocapture", name]);
    workspace::run(command.env(setting, value))
}

fn has_libfuzzer() -> bool {
    let status = nightly()
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// Returns the command `cargo fuzz` of the nightly toolchain, independent of the toolchain that runs this
/// program.
fn nightly() -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo", "fuzz"])
        .current_dir(root());
    for inherited in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(inherited);
    }
    command
}
