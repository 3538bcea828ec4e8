use crate::TrainerError;
use frostline_graph::{GraphError, Model, ONE_FILE};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

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

/// Writes `model` to `path`: whole, or not at all. A file that was there stays as it is until the new one takes its place. Over
/// 2 GiB the weights go to `<file name>.data` beside it.
///
/// # Errors
/// [`TrainerError::Export`] with the system's reason, such as a full disk.
pub(crate) fn write(model: &Model, path: &Path) -> Result<(), TrainerError> {
    write_within(model, path, ONE_FILE)
}

/// [`write`], with the weights beside the model over `limit` bytes.
fn write_within(model: &Model, path: &Path, limit: usize) -> Result<(), TrainerError> {
    // Dropped on any way out but the last, and with it go the files.
    let staged = model.stage(path, limit).map_err(failed)?;
    staged.commit().map_err(failed)
}

fn failed(error: GraphError) -> TrainerError {
    match error {
        GraphError::Write { path, source } => TrainerError::Export { path, source },
        other => other.into(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::network;

    #[test]
    fn a_model_too_large_for_one_file_has_its_weights_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tuned.onnx");
        write_within(&network(), &path, 1500).unwrap();
        let names = ["tuned.onnx", "tuned.onnx.data"].map(|name| folder.path().join(name).is_file());
        assert_eq!(names, [true, true]);
        assert_eq!(Model::read(&path).unwrap(), network());
    }
}
