//! Checks the artifacts of `cargo xtask dist` and the files in runtime/deploy without a cluster.

mod artifacts;
mod chart;
mod image;
mod install;
mod live;
mod package;
mod queries;
mod rules;
mod source;
mod store;
mod tools;

use crate::dist::{Build, PARTS};
use crate::parallel::{Lazy, on_threads};
use crate::workspace::target;
use crate::{ort, python};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

const HELP: &str = "\
Usage: cargo xtask deploy [CHECK..] [--profile dev|release] [--frostline FILE]

Packs the artifacts of `cargo xtask dist` into target/deploy/dist and runs the checks, by default all. Checks that cannot run on this machine
are reported as skipped.

  source   compile the command alone, and install ONNX Runtime with it
  hosts    run the queries of dashboard and rules on a Prometheus that scrapes real hosts
  install  install tarball, wheel and Debian package in a new Debian, run the command, and purge the package
  repeat   pack every artifact twice and compare, and verify SHA256SUMS
  package  check the Debian package with lintian
  image    start a host in the image
  chart    render the chart's archive and validate the manifests
  sbom     validate the bill of materials
  rules    test the Prometheus rules, and scrape a host with the packaged configuration
  unit     rate the exposure of the systemd unit

  --profile PROFILE  how the command and the wheel are built [default: dev]
  --frostline FILE   pack and run this program instead of building the command";

/// Inputs for the checks.
struct Setup {
    build: Build,
    /// Path of the `frostline` program.
    frostline: PathBuf,
    /// Path of the ONNX Runtime library.
    library: PathBuf,
    /// `target/deploy`.
    folder: PathBuf,
    /// Packed artifacts, parallel to [`PARTS`].
    artifacts: [Lazy<PathBuf>; PARTS.len()],
}

impl Setup {
    /// Returns the folder for packed artifacts.
    fn dist(&self) -> PathBuf {
        self.folder.join("dist")
    }

    /// Packs an artifact on first use and returns the path of the file.
    fn artifact(&self, name: &str) -> Result<&Path> {
        let mut parts = PARTS.iter().zip(&self.artifacts);
        let (part, artifact) = parts
            .find(|(part, _)| part.name == name)
            .with_context(|| format!("no part {name}"))?;
        let file = artifact.get(|| (part.pack)(&self.build, &self.dist()).with_context(|| part.name))?;
        Ok(file.as_path())
    }
}

/// Outcome of a check.
enum CheckResult {
    /// Summary of a successful check.
    Passed(String),
    /// Reason it cannot run on this machine.
    Skipped(String),
}

struct Check {
    name: &'static str,
    /// Artifacts under test.
    artifacts: &'static [&'static str],
    run: fn(&Setup) -> Result<CheckResult>,
}

impl Check {
    const fn new(
        name: &'static str,
        artifacts: &'static [&'static str],
        run: fn(&Setup) -> Result<CheckResult>,
    ) -> Self {
        Self { name, artifacts, run }
    }

    /// Returns the reason this machine cannot pack the artifacts under test.
    fn missing(&self) -> Option<String> {
        let mut parts = PARTS.iter().filter(|part| self.artifacts.contains(&part.name));
        parts.find_map(|part| (part.missing)())
    }
}

/// All checks, slowest first: they start in this order.
const CHECKS: [Check; 10] = [
    Check::new("source", &[], source::check),
    Check::new("hosts", &["chart"], live::check),
    Check::new("install", &["tarball", "wheel", "deb"], install::check),
    Check::new("repeat", &[], artifacts::check_repeated),
    Check::new("package", &["deb"], package::check),
    Check::new("image", &["image", "chart"], image::check),
    Check::new("chart", &["chart"], chart::check),
    Check::new("sbom", &["sbom"], artifacts::check_sbom),
    Check::new("rules", &[], rules::check),
    Check::new("unit", &[], package::check_unit),
];

/// `cargo xtask deploy`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let build = Build::from_flags(&mut words, "dev")?;
    let is_check = |word: &&str| CHECKS.iter().any(|check| check.name == *word);
    if let Some(other) = words.iter().find(|word| !is_check(word)) {
        bail!("unknown check {other:?}\n\n{HELP}");
    }
    let setup = Setup {
        frostline: build.frostline()?.to_owned(),
        library: ort::pinned_library()?,
        folder: target().join("deploy"),
        build,
        artifacts: std::array::from_fn(|_| Lazy::new()),
    };
    let _ = fs::remove_dir_all(setup.dist());
    fs::create_dir_all(setup.dist())?;
    let checks: Vec<&Check> = CHECKS
        .iter()
        .filter(|check| words.is_empty() || words.contains(&check.name))
        .collect();
    let results = on_threads(&checks, |check| {
        let name = check.name;
        let start = Instant::now();
        let result = match check.missing() {
            Some(why) => Ok(CheckResult::Skipped(why)),
            None => (check.run)(&setup),
        };
        match &result {
            Ok(CheckResult::Passed(what)) => {
                println!("deploy: {name}: {what} ({:.0} s)", start.elapsed().as_secs_f64());
            }
            Ok(CheckResult::Skipped(why)) => println!("deploy: {name}: SKIPPED: {why}"),
            Err(error) => eprintln!("deploy: {name}: FAILED: {error:#}"),
        }
        result
    });
    let count = |is_counted: fn(&Result<CheckResult>) -> bool| {
        results.iter().filter(|result| is_counted(result)).count()
    };
    let passed = count(|result| matches!(result, Ok(CheckResult::Passed(_))));
    let failed = count(Result::is_err);
    println!(
        "deploy: {passed} passed, {failed} failed, {} skipped",
        results.len() - passed - failed
    );
    if failed > 0 {
        bail!("deploy: {failed} checks failed");
    }
    Ok(())
}

/// Returns a `PATH` on which `python3` has the packages of the checks, or the reason for a failed
/// installation.
fn python_path() -> Result<OsString, String> {
    let path = python::ensure("runtime/deploy/requirements.txt", "python-deploy");
    path.map_err(|error| format!("{error:#}"))
}
