//! Tests `frostline extract` with the feature cache and with labels from a table.

use super::{backbone, repository};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Two classes with two photos each, and a folder for the cache.
struct Scene(tempfile::TempDir);

impl Scene {
    fn new() -> Self {
        let scene = Self(tempfile::tempdir().unwrap());
        for part in ["train", "validation"] {
            for class in ["cat", "brick"] {
                let folder = scene.path("photos").join(part).join(class);
                std::fs::create_dir_all(&folder).unwrap();
                for photo in ["00.jpg", "01.jpg"] {
                    let from = format!("models/zoo/demo/photos/{part}/{class}/{photo}");
                    let photo = folder.join(photo);
                    std::fs::copy(repository(&from), &photo).unwrap();
                    // Features of recently modified files are not shared with other jobs, because the files
                    // may change again.
                    let file = std::fs::File::options().write(true).open(photo).unwrap();
                    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
                }
            }
        }
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, command: &str, out: &str, more: &[&str]) -> Output {
        let text = |name| self.path(name).to_str().unwrap().to_owned();
        let photos = text("photos");
        let cache = text("cache");
        let out = text(out);
        let mut words = vec![command, "--json", "--data", &photos, "--feature-folder", &cache];
        words.extend(["--out", &out]);
        if !more.contains(&"--model") {
            words.extend(["--model", backbone().leak()]);
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_frostline"));
        command.env_remove("FROSTLINE_FEATURE_CACHE");
        let output = command.args(&words).args(more).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output
    }

    fn extract(&self, out: &str, more: &[&str]) -> (Value, String) {
        let output = self.run("extract", out, more);
        let done = serde_json::from_slice(&output.stdout).unwrap();
        (done, String::from_utf8(output.stderr).unwrap())
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }
}

/// Returns the files with cached features in `cache`.
fn rows(cache: &Path) -> Vec<PathBuf> {
    let stores = std::fs::read_dir(cache).unwrap();
    let rows = stores.map(|store| store.unwrap().path().join("rows"));
    rows.filter(|rows| rows.exists()).collect()
}

#[test]
fn rows_are_computed_once_for_jobs_and_extractions() {
    let scene = Scene::new();
    let cut = ["--cut", "features"];
    let (first, _) = scene.extract("first.arrow", &cut);
    assert_eq!((&first["rows"], &first["cached"]), (&8.into(), &0.into()));
    let (second, _) = scene.extract("second.arrow", &cut);
    assert_eq!((&second["rows"], &second["cached"]), (&8.into(), &8.into()));
    assert!(second["bytes_received"].as_u64() < first["bytes_received"].as_u64());
    assert!(scene.read("first.arrow") == scene.read("second.arrow"));

    // A job also uses the cached features.
    let job = [
        "--freeze", "features", "--epochs", "1", "--batch", "2", "--split", "features",
    ];
    let runs = scene.path("runs");
    let job = [&job[..], &["--runs", runs.to_str().unwrap()]].concat();
    let events = String::from_utf8(scene.run("train", "tuned.onnx", &job).stdout).unwrap();
    let events = events
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let features: Vec<Value> = events.filter(|event| event["event"] == "features").collect();
    assert_eq!(
        (&features[0]["kept"], &features[0]["rows"]),
        (&8.into(), &8.into())
    );

    // Features with a wrong checksum are computed again.
    for file in rows(&scene.path("cache")) {
        let damaged: Vec<u8> = std::fs::read(&file)
            .unwrap()
            .iter()
            .map(|byte| byte ^ 1)
            .collect();
        std::fs::write(file, damaged).unwrap();
    }
    let (third, said) = scene.extract("third.arrow", &cut);
    assert_eq!(third["rows"], 8);
    assert!(said.contains("8 cached features failed their checksum"), "{said}");
    let (off, _) = scene.extract("off.arrow", &[&cut[..], &["--feature-cache", "off"]].concat());
    assert_eq!((&off["rows"], &off["cached"]), (&8.into(), &0.into()));
}

#[test]
fn a_backbone_without_a_head_is_embedded() {
    let scene = Scene::new();
    let backbone = frostline_graph::Model::read(backbone()).unwrap();
    let cut = backbone
        .network()
        .unwrap()
        .named("features")
        .unwrap()
        .name
        .clone();
    let headless = backbone.slice(None, Some(&cut)).unwrap();
    let model = scene.path("headless.onnx");
    std::fs::write(&model, headless.to_bytes().unwrap()).unwrap();
    let headless = ["--model", model.to_str().unwrap(), "--cut", "output"];
    let (done, _) = scene.extract("x.arrow", &headless);
    assert_eq!(
        (&done["rows"], &done["shape"]),
        (&8.into(), &serde_json::json!([128]))
    );
}
