//! `frostline report`.

use crate::arguments::Report;
use crate::output::print_json;
use anyhow::{Context, Result, bail};
use frostline_job::folder as layout;
use frostline_report::Run;
use frostline_trainer::whole_file;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What was written.
#[derive(Serialize)]
struct Written {
    report: PathBuf,
    runs: Vec<String>,
    bytes: usize,
}

pub(crate) fn run(flags: &Report, json: bool) -> Result<()> {
    let target = match (&flags.out, flags.runs.as_slice()) {
        (Some(file), _) => file.clone(),
        (None, [run]) => run.join("report.html"),
        (None, _) => bail!("several runs have no folder in common: say where with --out FILE"),
    };
    let folders: Vec<Vec<PathBuf>> = flags
        .runs
        .iter()
        .map(|run| of_sweep(run))
        .collect::<Result<_>>()?;
    let runs: Vec<Run> = folders
        .iter()
        .flatten()
        .map(|run| Run::read(run))
        .collect::<Result<_, _>>()?;
    let page = frostline_report::html(&runs);
    whole_file::write(&target, |file| file.write_all(page.as_bytes()))
        .with_context(|| format!("cannot write the report to {}", target.display()))?;
    if json {
        print_json(&Written {
            report: target,
            runs: runs.iter().map(|run| run.name().to_owned()).collect(),
            bytes: page.len(),
        })?;
    } else {
        say!("{}", target.display());
    }
    Ok(())
}

/// The runs of a sweep's folder, by their names; of another folder that itself.
fn of_sweep(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.join(layout::SWEEP).is_file() {
        return Ok(vec![folder.to_owned()]);
    }
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut runs = Vec::new();
    for entry in entries {
        let path = entry?.path();
        // A variant that failed before its first event has nothing to show.
        if path.join(layout::EVENTS).is_file() {
            runs.push(path);
        }
    }
    runs.sort();
    Ok(runs)
}
