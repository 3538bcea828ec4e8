//! Tests where commands write: into pipes and devices, through links, and over existing files.

use super::{frostline, repository};
use frostline_graph::Model;
use frostline_graph::build::{batched, initializer, int, ints, model, node};
use frostline_graph::onnx::GraphProto;
use frostline_tensor::Tensor;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Every command that writes to a file of the user, with the extension of the file. `{out}` stands for the file and
/// `{folder}` for the folder of the test.
const WRITERS: [(&str, &str); 8] = [
    (
        "train --model {folder}/small.onnx --data {folder}/photos --epochs 1 --runs {folder}/runs --split none \
         --feature-cache off --out {out}",
        "onnx",
    ),
    (
        "train --model {folder}/small.onnx --data {folder}/photos --epochs 1 --runs {folder}/sweeps --split none \
         --feature-cache off --sweep seed=0,1 --out {out}",
        "onnx",
    ),
    (
        "model quantize {folder}/small.onnx --data {folder}/photos --prefix-precision f32 --out {out}",
        "onnx",
    ),
    (
        "extract --model {folder}/small.onnx --data {folder}/photos --cut features --feature-cache off --out {out}",
        "parquet",
    ),
    (
        "eval --model {folder}/small.onnx --data {folder}/photos --predictions {out}",
        "csv",
    ),
    ("report {folder}/run --out {out}", "html"),
    ("plan --simulate {folder}/measured.json --plot {out}", "svg"),
    (
        "profile --model {folder}/small.onnx --data {folder}/photos --plot {out}",
        "svg",
    ),
];

/// Folder with the inputs of [`WRITERS`].
pub(super) struct Scene(tempfile::TempDir);

impl Scene {
    pub(super) fn new() -> Self {
        let scene = Self(tempfile::tempdir().unwrap());
        for part in ["train", "validation"] {
            for (class, photo) in [("kind 0", "cat"), ("kind 1", "brick")] {
                let folder = scene.path("photos").join(part).join(class);
                fs::create_dir_all(&folder).unwrap();
                for name in ["00.jpg", "01.jpg"] {
                    let photo = format!("models/zoo/demo/photos/{part}/{photo}/{name}");
                    fs::copy(repository(&photo), folder.join(name)).unwrap();
                }
            }
        }
        small_network().write(scene.path("small.onnx")).unwrap();
        fs::create_dir(scene.path("run")).unwrap();
        let epoch = r#"{"event":"epoch","epoch":1,"loss":0.5,"validation_accuracy":0.75,"bytes_received":9,"validation_bytes_received":0,
            "seconds":1.0,"waited_seconds":0.5,"split":"none","skipped":0,"cached_rows":0,"fetched_rows":3,"at":2.0}"#;
        fs::write(scene.path("run/events.jsonl"), epoch.replace('\n', "") + "\n").unwrap();
        let measured = r#"{"link_bytes_per_second":1e6,"batch":10,"iterations":8,"candidates":[
            {"split":"none","host_seconds":0.1,"trainer_seconds":1,"bytes":9e6},
            {"split":"features","host_seconds":1.5,"trainer_seconds":0.5,"bytes":1e6}]}"#;
        fs::write(scene.path("measured.json"), measured).unwrap();
        scene
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a command with the placeholders of [`WRITERS`].
    pub(super) fn run(&self, words: &str, out: &Path) -> Output {
        let [folder, out] = [self.0.path(), out].map(|path| path.to_str().unwrap());
        let word = |word: &str| word.replace("{folder}", folder).replace("{out}", out);
        let words: Vec<String> = words.split_whitespace().map(word).collect();
        frostline(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Creates a node with arguments of `mknod`.
    fn node(&self, name: &str, kind: &[&str]) -> PathBuf {
        let path = self.path(name);
        let made = Command::new("mknod").arg(&path).args(kind).status();
        assert!(made.unwrap().success());
        path
    }
}

/// Convolution, pooling and a classifier of two outputs for images of 16 x 16 pixels.
fn small_network() -> Model {
    let weight = |name: &str, shape: &[usize]| {
        let values = (0..shape.iter().product()).map(|number: usize| (number % 7) as f32 / 7.0 - 0.4);
        initializer(name, &Tensor::f32(shape.to_vec(), values.collect()).unwrap())
    };
    let window = [ints("pads", &[1, 1, 1, 1]), ints("kernel_shape", &[3, 3])];
    let graph = GraphProto {
        name: "small".into(),
        node: vec![
            node("Conv", &["image", "w1"], &["c1"]).with(window),
            node("Relu", &["c1"], &["r1"]),
            node("GlobalAveragePool", &["r1"], &["pooled"]),
            node("Flatten", &["pooled"], &["features"]).with([int("axis", 1)]),
            node("Gemm", &["features", "w2"], &["scores"]).with([int("transB", 1)]),
        ],
        initializer: vec![weight("w1", &[4, 3, 3, 3]), weight("w2", &[2, 4])],
        input: vec![batched("image", &[3, 16, 16])],
        output: vec![batched("scores", &[2])],
        ..GraphProto::default()
    };
    let mut network = Model::from_proto(model(17, graph)).unwrap();
    network.set_metadata("frostline.classes", r#"["kind 0","kind 1"]"#);
    network
}

/// Opens a pipe for both directions, so that neither this process nor a command waits for the other end.
fn open_pipe(pipe: &Path) -> File {
    let no_wait = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut options = File::options();
    let opened = options.read(true).write(true).custom_flags(no_wait).open(pipe);
    opened.unwrap()
}

/// Reads the content of a pipe.
fn content(mut pipe: &File) -> Vec<u8> {
    let mut content = Vec::new();
    let end = pipe.read_to_end(&mut content).unwrap_err();
    assert_eq!(end.kind(), ErrorKind::WouldBlock);
    content
}

#[test]
fn every_command_writes_into_pipes_and_replaces_files_through_links() {
    let scene = Scene::new();
    for (number, (words, extension)) in WRITERS.into_iter().enumerate() {
        let at = |name: &str| scene.path(&format!("{name}-{number}.{extension}"));
        let pipe = scene.node(&format!("pipe-{number}.{extension}"), &["p"]);
        symlink(&pipe, at("to-pipe")).unwrap();
        // The results are smaller than the buffer of a pipe.
        let reader = open_pipe(&pipe);
        let done = scene.run(words, &at("to-pipe"));
        let piped = content(&reader);
        assert!(done.status.success(), "{words}: {done:?}");
        assert!(
            fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo(),
            "{words}"
        );

        // The old file remains unchanged under its other name, because the new file is a different one.
        fs::write(at("file"), "before").unwrap();
        fs::hard_link(at("file"), at("old")).unwrap();
        symlink(at("file"), at("to-file")).unwrap();
        let done = scene.run(words, &at("to-file"));
        assert!(done.status.success(), "{words}: {done:?}");
        assert!(fs::read(at("old")).unwrap() == b"before", "{words}");
        let written = fs::read(at("file")).unwrap();
        for link in ["to-pipe", "to-file"] {
            assert!(at(link).is_symlink(), "{words}");
        }
        assert_eq!(piped.get(..4), written.get(..4), "{words}");
        if extension == "onnx" {
            Model::from_bytes(piped.into()).unwrap();
            Model::read(at("file")).unwrap();
        }
    }
}

mod needs_root {
    use super::*;

    #[test]
    fn every_command_keeps_a_device() {
        let scene = Scene::new();
        for (number, (words, extension)) in WRITERS.into_iter().enumerate() {
            // The null device, in the folder of the test.
            let device = scene.node(&format!("device-{number}.{extension}"), &["c", "1", "3"]);
            let done = scene.run(words, &device);
            // Mounts can forbid the use of devices, but the node must not be replaced.
            let kind = fs::symlink_metadata(&device).unwrap().file_type();
            assert!(kind.is_char_device(), "{words}: {done:?}");
            if File::options().write(true).open(&device).is_ok() {
                assert!(done.status.success(), "{words}: {done:?}");
            }
        }
    }
}
