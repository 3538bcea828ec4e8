//! `frostline report`.

use crate::arguments::Report;
use crate::output::print_json;
use anyhow::{Context, Result, bail};
use frostline_report::Run;
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
    let runs: Vec<Run> = flags
        .runs
        .iter()
        .map(|run| Run::read(run))
        .collect::<Result<_, _>>()?;
    let page = frostline_report::html(&runs);
    write(&target, page.as_bytes())
        .with_context(|| format!("cannot write the report to {}", target.display()))?;
    if json {
        print_json(&Written {
            report: target,
            runs: runs.iter().map(|run| run.name().to_owned()).collect(),
            bytes: page.len(),
        })?;
    } else {
        println!("{}", target.display());
    }
    Ok(())
}

/// Whole or not at all.
fn write(target: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".frostline-").suffix(".html.part");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // As any new file: the user's mask applies.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(target)?;
    std::fs::File::open(folder)?.sync_all()
}
