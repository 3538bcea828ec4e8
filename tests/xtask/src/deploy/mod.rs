//! Builds and checks the contents of runtime/deploy, as far as one machine without a cluster can.

mod chart;
mod image;
mod live;
mod package;
mod queries;
mod rules;
mod store;
mod tools;

use crate::workspace::{program, target};
use crate::{ort, python};
use anyhow::{Context, Result, bail};
use std::cell::OnceCell;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

const HELP: &str = "\
Usage: cargo xtask deploy [CHECK..|build-deb|build-image] [--frostline FILE]

  CHECK        chart, rules, hosts, package, unit or image; default: all. Checks that cannot run on this machine are reported as skipped
    chart      render the chart and validate the manifests
    rules      test the Prometheus rules
    hosts      run the queries of dashboard and rules on a Prometheus that scrapes real hosts
    package    install and purge the Debian package
    unit       rate the exposure of the systemd unit
    image      start a host in the image
  build-deb    write the Debian package to target/deploy
  build-image  write the OCI image to target/deploy

  --frostline FILE  use this program, such as target/release/frostline, instead of a debug build";

/// The inputs of builds and checks.
struct Setup {
    /// The `frostline` program.
    frostline: PathBuf,
    /// The ONNX Runtime library.
    library: PathBuf,
    /// `target/deploy`.
    folder: PathBuf,
    /// The Debian package, once it is built.
    package: OnceCell<PathBuf>,
}

/// The result of a check.
enum CheckResult {
    /// What was checked.
    Passed(String),
    /// Why it cannot run on this machine.
    Skipped(String),
}

type Check = fn(&Setup) -> Result<CheckResult>;

const CHECKS: [(&str, Check); 6] = [
    ("chart", chart::check),
    ("rules", rules::check),
    ("hosts", live::check),
    ("package", package::check),
    ("unit", package::check_unit),
    ("image", image::check),
];

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let flag = words.iter().position(|word| *word == "--frostline");
    let frostline = match flag.map(|at| words.drain(at..).nth(1)) {
        Some(Some(file)) => Some(Path::new(file).canonicalize()?),
        Some(None) => bail!("{HELP}"),
        None => None,
    };
    let known = |word: &&str| CHECKS.iter().any(|(name, _)| name == word);
    if !matches!(words.as_slice(), ["build-deb" | "build-image"]) && !words.iter().all(known) {
        bail!("{HELP}");
    }
    let folder = target().join("deploy");
    fs::create_dir_all(&folder)?;
    let setup = Setup {
        frostline: frostline.map_or_else(|| program("frostline"), Ok)?,
        library: ort::ensure()?,
        folder,
        package: OnceCell::new(),
    };
    match words.as_slice() {
        ["build-deb"] => println!("{}", package::build(&setup)?.display()),
        ["build-image"] => println!("{}", image::build(&setup)?.display()),
        checks => check(&setup, checks)?,
    }
    Ok(())
}

/// Runs these checks, or all if none is named.
fn check(setup: &Setup, named: &[&str]) -> Result<()> {
    let (mut passed, mut skipped) = (0, 0);
    for (name, check) in CHECKS {
        if !named.is_empty() && !named.contains(&name) {
            continue;
        }
        let start = Instant::now();
        match check(setup).with_context(|| format!("deploy: {name}"))? {
            CheckResult::Passed(what) => {
                passed += 1;
                println!("deploy: {name}: {what} ({:.0} s)", start.elapsed().as_secs_f64());
            }
            CheckResult::Skipped(why) => {
                skipped += 1;
                println!("deploy: {name}: SKIPPED: {why}");
            }
        }
    }
    println!("deploy: {passed} passed, {skipped} skipped");
    Ok(())
}

/// A `PATH` whose python3 can validate manifests, or why there is none.
fn python_path() -> Result<OsString, String> {
    let path = python::ensure("runtime/deploy/requirements.txt", "python-deploy");
    path.map_err(|error| format!("{error:#}"))
}
