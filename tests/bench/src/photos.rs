//! Photos and pretrained networks for benchmarks. The defaults are in the repository.

use crate::run::{shared, source};
use std::path::{Path, PathBuf};

/// A photo folder with `train/<class>/*` and `validation/<class>/*`, or only with `<class>/*`.
#[derive(Debug, Clone)]
pub(crate) struct Photos(PathBuf);

impl Photos {
    /// Selects the first available folder: `named`, `data/clothing` in `FROSTLINE_SHARED`, the demo's photos.
    pub(crate) fn find(named: Option<&Path>) -> Self {
        let named = named.map(Path::to_path_buf);
        let folder = named.or_else(|| shared("data/clothing"));
        Self(folder.unwrap_or_else(|| demo("photos")))
    }

    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    /// Folder of the part `train` or `validation`; the whole folder if the photos are not divided into parts.
    pub(crate) fn part(&self, part: &str) -> PathBuf {
        let folder = self.0.join(part);
        if folder.is_dir() { folder } else { self.0.clone() }
    }
}

/// A network with pretrained weights.
#[derive(Debug, Clone)]
pub(crate) struct Pretrained {
    pub(crate) name: &'static str,
    pub(crate) file: PathBuf,
    pub(crate) freeze: &'static str,
    /// Cut before the last block.
    pub(crate) last_block: &'static str,
}

impl Pretrained {
    /// Selects SqueezeNet 1.1 with ImageNet weights from `FROSTLINE_SHARED`, or the demo's small backbone.
    pub(crate) fn find() -> Self {
        match shared("data/squeezenet1_1_pooled.onnx") {
            Some(file) => Self {
                name: "squeezenet1_1_pooled",
                file,
                freeze: "features",
                last_block: "46",
            },
            None => Self {
                name: "backbone",
                file: demo("backbone.onnx"),
                freeze: "features",
                last_block: "stage2.0",
            },
        }
    }
}

fn demo(path: &str) -> PathBuf {
    source("models/zoo/demo").join(path)
}

#[cfg(test)]
mod tests {
    use super::{Photos, demo};
    use std::path::Path;

    #[test]
    fn undivided_photos_are_used_for_all_parts() {
        let divided = Photos(demo("photos"));
        assert!(divided.part("train").ends_with("photos/train"));
        let flat = Photos::find(Some(&divided.part("train")));
        assert_eq!(flat.part("validation"), flat.root());
        assert!(Path::new(flat.root()).join("brick").is_dir());
    }
}
