//! The main job with photos in tar shards, which must give the same losses as single files.

use crate::harness::{Scratch, events, series};
use crate::s3::{Moto, with_credentials};
use frostline_e2e::finish;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Photos per shard. Some classes span two shards.
const SHARD: usize = 7;

/// Packs `photos/<part>/<class>/<photo>` into `shards/<part>-<number>.tar`, each photo with a `.cls` file.
fn pack(scratch: &Scratch) -> PathBuf {
    let shards = scratch.path("shards");
    fs::create_dir_all(&shards).unwrap();
    for (part, name) in [("train", "train"), ("validation", "val")] {
        let mut photos = Vec::new();
        for class in sorted(&scratch.path("photos").join(part)) {
            photos.extend(sorted(&class).into_iter().map(|photo| (class.clone(), photo)));
        }
        for (number, photos) in photos.chunks(SHARD).enumerate() {
            let file = fs::File::create(shards.join(format!("{name}-{number:03}.tar"))).unwrap();
            let mut archive = tar::Builder::new(file);
            for (class, photo) in photos {
                let class = class.file_name().unwrap().to_str().unwrap();
                let stem = photo.file_stem().unwrap().to_str().unwrap();
                let stem = format!("{class}/{}", stem.replace('.', "_"));
                append(&mut archive, &format!("{stem}.cls"), class.as_bytes());
                append(&mut archive, &format!("{stem}.jpg"), &fs::read(photo).unwrap());
            }
            archive.finish().unwrap();
        }
    }
    fs::write(shards.join("README.md"), "description of the shards").unwrap();
    shards
}

fn append(archive: &mut tar::Builder<fs::File>, name: &str, content: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    archive.append_data(&mut header, name, content).unwrap();
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    entries
}

fn losses(events: &[Value]) -> (Vec<f64>, Vec<f64>) {
    (
        series(events, "step", "loss"),
        series(events, "epoch", "validation_accuracy"),
    )
}

#[test]
fn photos_in_shards_train_like_single_photos() {
    let scratch = Scratch::with_photos(6, 2);
    let single = losses(&events(&scratch.train(&["--split", "features"])));
    assert!(!single.0.is_empty() && !single.1.is_empty());
    let shards = pack(&scratch);
    let folder = shards.to_str().unwrap();
    for layout in ["auto", "shards"] {
        let run = scratch.train(&["--split", "features", "--data", folder, "--layout", layout]);
        assert_eq!(losses(&events(&run)), single, "{layout}");
    }
    let raw = scratch.train(&["--split", "none", "--data", folder]);
    assert_eq!(losses(&events(&raw)).0.len(), single.0.len());
}

#[test]
fn shards_listed_as_objects_are_refused() {
    let scratch = Scratch::with_photos(2, 1);
    let shards = pack(&scratch);
    let run = scratch.train(&["--data", shards.to_str().unwrap(), "--layout", "objects"]);
    scratch.assert_failed(&run, &["no samples under", ".cls"]);
}

#[test]
fn a_damaged_shard_is_named() {
    let scratch = Scratch::with_photos(2, 1);
    let shards = pack(&scratch);
    let file = shards.join("train-000.tar");
    let archive = fs::read(&file).unwrap();
    fs::write(&file, &archive[..archive.len() / 2]).unwrap();
    let run = scratch.train(&["--data", shards.to_str().unwrap()]);
    scratch.assert_failed(&run, &["train-000.tar", "ends in the middle"]);
}

mod long {
    use super::*;

    #[test]
    fn photos_in_shards_in_a_bucket_train_like_single_photos() {
        let scratch = Scratch::with_photos(6, 2);
        let shards = pack(&scratch);
        let moto = Moto::with_files(&shards);
        let single = losses(&events(&scratch.train(&["--split", "features"])));
        let mut train = scratch.train_command(&["--split", "features", "--data", "s3://photos/shop"]);
        let run = finish(with_credentials(&mut train, &moto.url)).unwrap();
        assert_eq!(losses(&events(&run)), single);
    }
}
