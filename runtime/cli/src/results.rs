//! What a run's folder has for people and for other programs, made of what the job wrote there.

use frostline_report::Run;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Of all runs the same, so that a run that is gone on with has one.
const TENSORBOARD: &str = "events.out.tfevents.0.frostline";

/// Writes report, metrics and TensorBoard's file into the folder of a run, and returns the report's place.
///
/// # Errors
/// What cannot be read or written, in words.
pub(crate) fn write(folder: &Path) -> Result<PathBuf, String> {
    let run = Run::read(folder).map_err(|error| error.to_string())?;
    let report = folder.join("report.html");
    let page = frostline_report::html(std::slice::from_ref(&run));
    for (name, bytes) in [
        ("metrics.csv", frostline_report::metrics_csv(&run).into_bytes()),
        (TENSORBOARD, frostline_report::tensorboard(&run)),
        ("report.html", page.into_bytes()),
    ] {
        let file = folder.join(name);
        whole(&file, &bytes).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(report)
}

/// Writes a file whole or not at all.
pub(crate) fn whole(target: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".frostline-").suffix(".part");
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
