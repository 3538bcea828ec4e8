use crate::{TrainerError, whole_file};
use frostline_graph::{GraphError, Model, ONE_FILE};
use std::path::Path;

const TUNED_MODEL: &str = "tuned model";

/// Refuses an unwritable target before hours of training.
pub(crate) fn check_target(path: &Path) -> Result<(), TrainerError> {
    whole_file::check(path).map_err(TrainerError::unwritten(TUNED_MODEL, path))
}

/// Writes `model` to `path` atomically. An existing file stays valid until the new file is complete. Above 2
/// GiB, the weights are in a second file `<file name>.<hash>.data`.
///
/// # Errors
/// Returns [`TrainerError::Output`] if the system reports an error, such as a full disk.
pub(crate) fn write(model: &Model, path: &Path) -> Result<(), TrainerError> {
    write_within(model, path, ONE_FILE)
}

/// [`write()`] with external weights above `limit` bytes.
fn write_within(model: &Model, path: &Path, limit: usize) -> Result<(), TrainerError> {
    // Without a commit, dropping this removes the files.
    let staged = model.stage(path, limit).map_err(failed)?;
    staged.commit().map_err(failed)
}

fn failed(error: GraphError) -> TrainerError {
    match error {
        GraphError::Write { path, source } => TrainerError::unwritten(TUNED_MODEL, &path)(source),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::network;

    #[test]
    fn a_model_too_large_for_one_file_has_external_weights() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tuned.onnx");
        write_within(&network(), &path, 1500).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        assert_eq!(Model::read(&path).unwrap(), network());
    }
}
