//! The fuzz targets of `tests/fuzz`: under libFuzzer where a nightly compiler and cargo-fuzz are installed, else on plain mutations.

use crate::workspace::{self, cargo, root, target};
use anyhow::{Context, Result, bail};
use std::process::{Command, Stdio};

/// How long each target runs when nobody says.
const SECONDS: u64 = 30;
/// What libFuzzer allows one input: memory in MiB, seconds, bytes.
const LIMITS: [&str; 3] = ["-rss_limit_mb=2048", "-timeout=10", "-max_len=65536"];

/// `cargo xtask fuzz [--seconds N] [target..]`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (seconds, names) = parse(arguments)?;
    let known = targets()?;
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        bail!(
            "there is no fuzz target {unknown:?}; there are {}",
            known.join(", ")
        );
    }
    let names = if names.is_empty() { known } else { names };
    if !has_libfuzzer() {
        eprintln!("no nightly compiler with cargo-fuzz here: plain mutations, {seconds} s for each target");
        return names
            .iter()
            .try_for_each(|name| plain(name, "FROSTLINE_FUZZ_SECONDS", &seconds.to_string()));
    }
    let folder = target().join("fuzz");
    for name in names {
        let seeds = folder.join("seeds");
        plain(&name, "FROSTLINE_FUZZ_SEEDS", &seeds.to_string_lossy())?;
        let corpus = folder.join("corpus").join(&name);
        std::fs::create_dir_all(&corpus).with_context(|| format!("cannot make {}", corpus.display()))?;
        let mut command = nightly();
        command.args(["run", "--fuzz-dir", "tests/fuzz/libfuzzer", "--target-dir"]);
        command
            .arg(folder.join("build"))
            .args([&name])
            .arg(corpus)
            .arg(seeds.join(&name));
        command
            .arg("--")
            .arg(format!("-max_total_time={seconds}"))
            .args(LIMITS);
        workspace::run(&mut command)?;
    }
    Ok(())
}

fn parse(arguments: &[String]) -> Result<(u64, Vec<String>)> {
    let mut seconds = SECONDS;
    let mut names = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--seconds" => {
                let number = rest.next().context("--seconds wants a number")?;
                seconds = number
                    .parse()
                    .with_context(|| format!("{number:?} is no number of seconds"))?;
            }
            flag if flag.starts_with('-') => {
                bail!("there is no flag {flag:?}; give --seconds and names of targets")
            }
            name => names.push(name.to_owned()),
        }
    }
    Ok((seconds, names))
}

/// The targets, by their binaries.
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

/// One target as an ordinary test, with one of its settings.
fn plain(name: &str, setting: &str, value: &str) -> Result<()> {
    let mut command = cargo();
    command.args([
        "test",
        "--workspace",
        "--test",
        "fuzz",
        "--",
        "--exact",
        "--nocapture",
        name,
    ]);
    workspace::run(command.env(setting, value))
}

fn has_libfuzzer() -> bool {
    let found = nightly()
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    found.is_ok_and(|status| status.success())
}

/// `cargo fuzz` of the nightly toolchain, whatever toolchain runs us.
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
