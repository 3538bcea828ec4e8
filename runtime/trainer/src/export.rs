use crate::TrainerError;
use frostline_graph::Model;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;

/// Refuses a target that cannot be written to, before hours are spent on what should go there.
pub(crate) fn check_target(path: &Path) -> Result<(), TrainerError> {
    let failed = |source| TrainerError::Export {
        path: path.to_owned(),
        source,
    };
    if path.is_dir() {
        return Err(failed(std::io::Error::new(
            ErrorKind::IsADirectory,
            "it is a directory",
        )));
    }
    temporary(path).map(drop).map_err(failed)
}

/// Writes `model` to `path`: whole, or not at all. A file that was there stays as it is until the new one takes its place.
///
/// # Errors
/// [`TrainerError::Export`] with the system's reason, such as a full disk; [`TrainerError::Cancelled`].
pub(crate) fn write(model: &Model, path: &Path, cancel: &CancellationToken) -> Result<(), TrainerError> {
    let bytes = model.to_bytes()?;
    let failed = |source| TrainerError::Export {
        path: path.to_owned(),
        source,
    };
    // Dropped on any way out but the last, and with it goes the file.
    let mut file = temporary(path).map_err(failed)?;
    file.write_all(&bytes)
        .and_then(|()| file.as_file().sync_all())
        .map_err(failed)?;
    if cancel.is_cancelled() {
        return Err(TrainerError::Cancelled);
    }
    file.persist(path).map(drop).map_err(|error| failed(error.error))
}

/// A file beside `path`, so that it can be renamed to it.
fn temporary(path: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.map_or_else(|| PathBuf::from("."), Path::to_path_buf);
    let mut builder = tempfile::Builder::new();
    builder.prefix(".frostline-").suffix(".onnx.part");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // As any new file: the user's mask applies. Temporary files are for their owner only otherwise.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(parent)
}
