//! Tests data folders with links to files in the cache of another tool.

use super::images::named_network;
use super::{frostline, repository};

#[test]
fn links_out_of_the_data_are_named_and_followed_on_demand() {
    let folder = tempfile::tempdir().unwrap();
    let model = named_network(folder.path());
    let cache = folder.path().join("repo/cache");
    let data = folder.path().join("repo/data");
    std::fs::create_dir_all(&cache).unwrap();
    for (class, photo) in [("kind 0", "cat"), ("kind 1", "brick")] {
        std::fs::create_dir_all(data.join(class)).unwrap();
        let photo = repository(&format!("models/zoo/demo/photos/train/{photo}/00.jpg"));
        let kept = cache.join(class);
        std::fs::copy(photo, &kept).unwrap();
        std::os::unix::fs::symlink(&kept, data.join(class).join("0.jpg")).unwrap();
    }
    let eval = |flags: &[&str]| {
        let words = ["eval", "--model", &model, "--data", data.to_str().unwrap()];
        let said = frostline(&[&words, flags].concat());
        (said.status.success(), String::from_utf8(said.stderr).unwrap())
    };
    let (ended, text) = eval(&[]);
    let first = format!("(first: kind 0/0.jpg -> {})", cache.join("kind 0").display());
    let cause = format!("2 links lead out of the data root {first}: ask the host's operator");
    assert!(text.contains("hint: try again with --follow-links DIR"), "{text}");
    assert!(!ended && text.contains(&format!("skipped    {cause}")), "{text}");
    assert!(
        text.contains(&format!("no samples under '{}': {cause}", data.display())),
        "{text}"
    );

    let repo = folder.path().join("repo");
    let doctor = |flags: &[&str]| {
        let said = frostline(&[&["doctor", "--data", data.to_str().unwrap()], flags].concat());
        String::from_utf8(said.stdout).unwrap()
    };
    let text = doctor(&[]);
    assert!(text.contains("2 links lead out"), "{text}");
    let text = doctor(&["--follow-links", repo.to_str().unwrap()]);
    assert!(text.contains("kind 0/0.jpg can be read"), "{text}");
    let (ended, text) = eval(&["--follow-links", repo.to_str().unwrap()]);
    assert!(ended && !text.contains("skipped"), "{text}");

    let (ended, text) = eval(&["--follow-links", cache.to_str().unwrap()]);
    assert!(!ended && text.contains("is not a folder above --data"), "{text}");
}
