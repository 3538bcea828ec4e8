//! Finding the shared networks.

use crate::Model;
use std::path::PathBuf;

/// The folder of shared data, or `None` with a line that says so.
pub(super) fn shared() -> Option<PathBuf> {
    let folder = std::env::var_os("FROSTLINE_SHARED").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: FROSTLINE_SHARED is not set");
    }
    folder
}

/// A skeleton network: its weights are missing, its shapes are there.
pub(super) fn skeleton(name: &str) -> Option<Model> {
    let path = shared()?.join("models/skeletons").join(format!("{name}.onnx"));
    Some(Model::read(path).expect("the skeleton is readable"))
}
