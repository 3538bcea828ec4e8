//! Checks that artifacts are reproducible, SHA256SUMS is correct and the bill of materials is valid.

use super::{CheckResult, Setup, python_path};
use crate::dist::{PARTS, write_sums};
use crate::workspace::{output, run};
use anyhow::{Context, Result, bail};
use std::fs;
use std::process::Command;

/// Packs every artifact a second time, without recompiling the command, and compares the files.
pub(super) fn check_repeated(setup: &Setup) -> Result<CheckResult> {
    let again = setup.folder.join("again");
    let _ = fs::remove_dir_all(&again);
    fs::create_dir_all(&again)?;
    let mut packed = Vec::new();
    let mut left_out = String::new();
    for part in PARTS {
        if let Some(why) = (part.missing)() {
            left_out.push_str(&format!("; without {}: {why}", part.name));
            continue;
        }
        let first = setup.artifact(part.name)?;
        let second = (part.pack)(&setup.build, &again)?;
        if first.file_name() != second.file_name() || fs::read(first)? != fs::read(&second)? {
            bail!(
                "{} and {} differ; compare them with diffoscope",
                first.display(),
                second.display()
            );
        }
        let megabytes = fs::metadata(first)?.len() as f64 / 1e6;
        packed.push(format!("{} {megabytes:.2} MB", part.name));
    }
    fs::remove_dir_all(&again)?;
    write_sums(&setup.dist())?;
    run(Command::new("sha256sum")
        .args(["--check", "--strict", "--quiet", "SHA256SUMS"])
        .current_dir(setup.dist()))?;
    Ok(CheckResult::Passed(format!(
        "equal when packed twice, SHA256SUMS verified: {}{left_out}",
        packed.join(", ")
    )))
}

/// Validates the bill of materials against the official JSON schema.
pub(super) fn check_sbom(setup: &Setup) -> Result<CheckResult> {
    const SCRIPT: &str = "\
import json, sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
text = open(sys.argv[1]).read()
error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
if error:
    sys.exit(str(error))
print(len(json.loads(text)['components']))";
    let path = match python_path() {
        Ok(path) => path,
        Err(why) => return Ok(CheckResult::Skipped(why)),
    };
    let validated = output(
        Command::new("python3")
            .args(["-c", SCRIPT])
            .arg(setup.artifact("sbom")?)
            .env("PATH", path),
    );
    let components = validated.context("the bill of materials is invalid")?;
    Ok(CheckResult::Passed(format!(
        "valid by the schema of CycloneDX 1.6, {} components",
        components.trim()
    )))
}
