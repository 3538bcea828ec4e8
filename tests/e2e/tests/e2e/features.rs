//! The feature cache of the whole system.

use crate::harness::{Scratch, events, frostline, series};
use frostline_e2e::finish;
use serde_json::Value;

fn events_of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == kind).collect()
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
