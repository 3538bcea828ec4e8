//! The photos and the trained networks that benchmarks use: those of the repository, unless others are named.

use crate::run::{shared, source};
use std::path::{Path, PathBuf};

/// A folder of photos: `train/<class>/*` and `validation/<class>/*`, or `<class>/*` alone.
#[derive(Debug, Clone)]
pub(crate) struct Photos(PathBuf);

impl Photos {
    /// Those in `named`; else the real ones that `FROSTLINE_SHARED` names; else the demo's.
    pub(crate) fn find(named: Option<&Path>) -> Self {
        let named = named.map(Path::to_path_buf);
        let folder = named.or_else(|| shared("data/clothing"));
        Self(folder.unwrap_or_else(|| demo("photos")))
    }

    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    /// `train` or `validation`; all of them where they are not divided.
    pub(crate) fn part(&self, part: &str) -> PathBuf {
        let folder = self.0.join(part);
        if folder.is_dir() { folder } else { self.0.clone() }
    }
}

/// A network with trained weights, to be fine-tuned in earnest.
#[derive(Debug, Clone)]
pub(crate) struct Pretrained {
    pub(crate) name: &'static str,
    pub(crate) file: PathBuf,
    pub(crate) freeze: &'static str,
    /// Where its last block begins.
    pub(crate) last_block: &'static str,
}

impl Pretrained {
    /// SqueezeNet 1.1 with ImageNet's weights from `FROSTLINE_SHARED`, or the demo's small backbone without it.
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
    fn photos_that_are_not_divided_are_all_of_them() {
        let divided = Photos(demo("photos"));
        assert!(divided.part("train").ends_with("photos/train"));
        let flat = Photos::find(Some(&divided.part("train")));
        assert_eq!(flat.part("validation"), flat.root());
        assert!(Path::new(flat.root()).join("brick").is_dir());
    }
}
