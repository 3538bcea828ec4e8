//! Tests of images compared with Pillow, broken images, and whole batches.

// Helpers outside `#[test]` functions count as production code to clippy.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods
)]

mod augmenting;
mod batches;
mod broken;
mod kinds;
mod photos;
mod recipes;
mod torchvision;
mod work;

use std::path::{Path, PathBuf};

/// Returns the folder of small images that `make.py` created.
fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(fixtures().join(name)).unwrap()
}

/// Returns the name and bytes of all images in the folder, sorted by name.
fn images() -> Vec<(String, Vec<u8>)> {
    let names = std::fs::read_dir(fixtures())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names
        .filter(|name| {
            [".jpg", ".png", ".webp", ".gif", ".bmp"]
                .iter()
                .any(|end| name.ends_with(end))
        })
        .collect();
    names.sort();
    names
        .into_iter()
        .map(|name| (name.clone(), fixture(&name)))
        .collect()
}
