//! `frostline report`, which writes a web page about one or more runs.

use crate::arguments::ReportFlags;
use crate::hints::{Hinted, NextStep};
use crate::output::{print_result, write_file};
use anyhow::{Context, Result, anyhow, bail};
use frostline_job::folder as layout;
use frostline_report::Run;
use frostline_sealed::whole_file;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Output of `--json`.
#[derive(Serialize)]
struct WrittenReport {
    report: PathBuf,
    runs: Vec<String>,
    bytes: usize,
}

pub(crate) fn run(flags: &ReportFlags, json: bool) -> Result<()> {
    let target = match (&flags.out, flags.runs.as_slice()) {
        (Some(file), _) => file.clone(),
        (None, [run]) => run.join("report.html"),
        (None, _) => {
            let error = anyhow!("a report on several runs needs an output file");
            return Err(Hinted::wrap(error, vec![NextStep::set("out", Value::Null)]));
        }
    };
    let mut folders = Vec::new();
    for run in &flags.runs {
        folders.extend(of_sweep(run)?);
    }
    let mut inputs = folders.iter().flat_map(|run| {
        let names = [layout::CONFIG, layout::EVENTS, layout::PLAN, layout::PREDICTIONS];
        names.map(|name| run.join(name))
    });
    if inputs.any(|input| whole_file::is_same(&input, &target)) {
        bail!(
            "cannot overwrite input {} of the report; choose a different output file",
            target.display()
        );
    }
    let runs = folders.iter().map(|run| Run::read(run));
    let runs: Vec<Run> = runs.collect::<Result<_, _>>()?;
    let page = frostline_report::html(&runs);
    write_file("the report to ", &target, page.as_bytes())?;
    let text = target.display().to_string();
    let written = WrittenReport {
        report: target,
        runs: runs.iter().map(|run| run.name().to_owned()).collect(),
        bytes: page.len(),
    };
    print_result(json, &written, text)
}

/// Returns the runs in the folder of a sweep, sorted by name. Other folders are returned unchanged.
fn of_sweep(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.join(layout::SWEEP).is_file() {
        return Ok(vec![folder.to_owned()]);
    }
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut runs = Vec::new();
    for entry in entries {
        let path = entry?.path();
        // Skip variants that failed without an event.
        if path.join(layout::EVENTS).is_file() {
            runs.push(path);
        }
    }
    runs.sort();
    Ok(runs)
}
