//! The feature cache of the whole system.

use crate::harness::{Scratch, events, frostline, series};
use frostline_e2e::finish;
use serde_json::Value;

fn events_of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == kind).collect()
}

#[test]
fn a_file_replaced_with_the_same_version_is_computed_again() {
    let scratch = Scratch::with_photos(6, 3);
    let folder = scratch.path("kept");
    let files: Vec<_> = std::fs::read_dir(scratch.class("train", 0))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    // Bytes after the image make contents of the same size.
    let write = |path: &std::path::Path, content: Vec<u8>| {
        let before = std::fs::metadata(path).unwrap().modified().unwrap();
        std::fs::write(path, content).unwrap();
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(before).unwrap();
    };
    let image = std::fs::read(&files[0]).unwrap();
    write(&files[0], [&image[..], b"a"].concat());
    let train = || {
        let folder = folder.to_str().unwrap();
        let flags = [
            "--feature-folder",
            folder,
            "--feature-cache",
            "64MiB",
            "--split",
            "features",
        ];
        let events = events(&scratch.train(&flags));
        let fetched = events_of(&events, "epoch").into_iter();
        fetched
            .map(|epoch| epoch["fetched_rows"].as_u64().unwrap())
            .sum::<u64>()
    };
    assert!(train() > 1);
    assert_eq!(train(), 0);
    write(&files[0], [&image[..], b"b"].concat());
    // Only the time of the last change of this file is new, as in a copy of the folder.
    let content = std::fs::read(&files[1]).unwrap();
    write(&files[1], content);
    assert_eq!(train(), 1);
    assert_eq!(train(), 0);
}

#[test]
fn cached_features_are_reused_listed_and_removed() {
    let scratch = Scratch::with_photos(10, 4);
    let folder = scratch.path("kept");
    let folder = folder.to_str().unwrap();
    let keeping = [
        "--feature-folder",
        folder,
        "--feature-cache",
        "64MiB",
        "--encoding",
        "f32",
    ];
    let train = |more: &[&str]| events(&scratch.train(&[&keeping[..], more].concat()));
    let first = train(&["--epochs", "3", "--split", "features"]);
    let rows = |epoch: &Value| (epoch["cached_rows"].as_u64(), epoch["fetched_rows"].as_u64());
    // There are 30 training images and 12 validation images. The latter are fetched once, before the first
    // epoch.
    let epochs: Vec<_> = events_of(&first, "epoch").into_iter().map(rows).collect();
    assert_eq!(epochs[0], (Some(12), Some(30)));
    assert_eq!(epochs[1..], [(Some(42), Some(0)); 2]);
    let second = train(&["--epochs", "3", "--lr", "0.02"]);
    assert_eq!(events_of(&second, "features")[0]["kept"], 42);
    assert!(events_of(&second, "upload").is_empty() && events_of(&second, "measuring").is_empty());
    assert_eq!(events_of(&second, "done")[0]["received"]["training"], 0);
    let without = events(&scratch.train(&[
        "--epochs",
        "3",
        "--lr",
        "0.02",
        "--split",
        "features",
        "--feature-cache",
        "off",
    ]));
    let pairs = series(&second, "step", "loss")
        .into_iter()
        .zip(series(&without, "step", "loss"));
    for (kept, computed) in pairs {
        assert!((kept - computed).abs() < 1e-4, "{kept} {computed}");
    }
    let cache = |arguments: &[&str]| {
        let mut command = frostline();
        finish(
            command
                .args(["--json", "cache"])
                .args(arguments)
                .args(["--feature-folder", folder]),
        )
        .unwrap()
    };
    let listed = cache(&["list"]).objects().unwrap();
    assert_eq!((listed.len(), &listed[0]["rows"]), (1, &Value::from(42)));
    let refused = cache(&["clear", "nothing"]).failure().unwrap();
    assert!(
        refused["error"].as_str().unwrap().contains("cache list"),
        "{refused}"
    );
    let name = listed[0]["name"].as_str().unwrap();
    assert_eq!(cache(&["clear", name]).objects().unwrap()[0]["removed"], 1);
    assert!(cache(&["list"]).objects().unwrap().is_empty());
}
