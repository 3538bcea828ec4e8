//! `frostline report`.

use crate::arguments::Report;
use crate::output::print_json;
use anyhow::{Context, Result, bail};
use frostline_report::Run;
use frostline_trainer::whole_file;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

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
    let runs: Vec<Run> = flags
        .runs
        .iter()
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
