//! What runtime/deploy has, built and checked as far as that goes on one machine without a cluster.

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

  chart, rules, hosts, package, unit, image   what is checked, all of it by default; what cannot be tried here is skipped and said:
         the chart rendered and validated, its rules tested, its queries answered by a Prometheus that scrapes real hosts, the package
         installed, its unit's exposure, the image started
  build-deb    write the Debian package into target/deploy
  build-image  write the OCI image into target/deploy

  --frostline FILE  a program that is there, such as target/release/frostline, instead of one built for debugging";

/// What everything here needs.
struct Setup {
    /// The `frostline` program.
    frostline: PathBuf,
    /// The ONNX Runtime library.
    library: PathBuf,
    /// `target/deploy`.
    folder: PathBuf,
    /// The Debian package, once it was built.
    package: OnceCell<PathBuf>,
}

/// What became of a check.
enum Outcome {
    /// What it showed.
    Passed(String),
    /// Why it could not be tried here.
    Skipped(String),
}

type Check = fn(&Setup) -> Result<Outcome>;

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
    let given = words.iter().position(|word| *word == "--frostline");
    let frostline = match given.map(|at| words.drain(at..).nth(1)) {
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

/// Checks these, or all where none is named.
fn check(setup: &Setup, named: &[&str]) -> Result<()> {
    let (mut passed, mut skipped) = (0, 0);
    for (name, check) in CHECKS {
        if !named.is_empty() && !named.contains(&name) {
            continue;
        }
        let start = Instant::now();
        match check(setup).with_context(|| format!("deploy: {name}"))? {
            Outcome::Passed(what) => {
                passed += 1;
                println!("deploy: {name}: {what} ({:.0} s)", start.elapsed().as_secs_f64());
            }
            Outcome::Skipped(why) => {
                skipped += 1;
                println!("deploy: {name}: SKIPPED: {why}");
            }
        }
    }
    println!("deploy: {passed} passed, {skipped} skipped");
    Ok(())
}

/// A `PATH` whose python3 has what validates manifests; else why not.
fn python_path() -> Result<OsString, String> {
    let path = python::ensure("runtime/deploy/requirements.txt", "python-deploy");
    path.map_err(|error| format!("{error:#}"))
}
