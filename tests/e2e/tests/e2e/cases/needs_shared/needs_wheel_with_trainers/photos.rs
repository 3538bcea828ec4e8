//! Photos and shards as phones, macOS and Git LFS leave them.

use super::case::Case;
use frostline_e2e::{Finished, repository};
use std::fs;

/// Runs a command on the demo network. `{model}` stands for its file.
fn run(case: &Case, line: &str) -> Finished {
    let model = repository().join("models/zoo/demo/backbone.onnx");
    let model = model.to_str().unwrap();
    let arguments: Vec<&str> = line
        .split(' ')
        .map(|word| if word == "{model}" { model } else { word })
        .collect();
    case.frostline(&arguments)
}

fn assert_done(finished: &Finished) -> String {
    assert_eq!(finished.code, Some(0), "{finished:?}");
    format!("{}{}", finished.stdout, finished.stderr)
}

#[test]
fn panoramas_without_an_end_marker_train() {
    let case = Case::generate("01-jpeg-without-end");
    let train = "train --model {model} --data data --freeze features --epochs 1 --out t.onnx";
    let refused = run(&case, train);
    if refused.code != Some(0) {
        // A damaged scan is refused for what it is.
        let text = refused.stderr;
        assert!(
            text.contains("sunset/damaged") && text.contains("is damaged"),
            "{text}"
        );
        assert!(!text.contains("truncated"), "{text}");
    }
    let skipping = format!("{train} --on-bad-sample skip");
    let text = assert_done(&run(&case, &skipping));
    assert!(!text.contains("panorama"), "{text}");
}

#[test]
fn hidden_members_of_shards_are_skipped_and_bmp_is_an_image() {
    let case = Case::generate("02-mac-tar");
    let train = "train --model {model} --freeze features --epochs 1 --out t.onnx";
    let text = assert_done(&run(&case, &format!("{train} --data data --json")));
    assert!(
        !text.contains("bad_sample") && !text.contains("left_out"),
        "{text}"
    );
    let extract = "extract --model {model} --data data --cut features --out f.arrow";
    let text = assert_done(&run(&case, extract));
    assert!(text.contains("66"), "{text}");
    let text = assert_done(&run(&case, &format!("{train} --data bmp --validation 0.25")));
    assert!(!text.contains("skipped"), "{text}");
}

#[test]
fn damaged_photos_decode_as_in_pillow_or_are_refused() {
    let case = Case::generate("36-damaged-photos");
    // The network of `check.py`, whose cut `same` is the pixels.
    let network = "\
import sys; sys.path.insert(0, '..')
from common import *
from onnx import TensorProto, helper
value = helper.make_tensor_value_info
nodes = [helper.make_node('Identity', ['pixels'], ['same']), helper.make_node('GlobalAveragePool', ['same'], ['pooled']),
         helper.make_node('Flatten', ['pooled'], ['features']), helper.make_node('Gemm', ['features', 'w', 'b'], ['logits'])]
weights = {'w': np.ones((3, 2), 'float32'), 'b': np.zeros(2, 'float32')}
import onnx
onnx.save(model(nodes, weights, [value('pixels', TensorProto.FLOAT, ['batch', 3, 96, 96])], [value('logits', TensorProto.FLOAT, ['batch', 2])]), '../px96.onnx')
";
    fs::write(case.path("network.py"), network).unwrap();
    assert_done(&case.python("network.py", &[]));
    let checked = assert_done(&case.python("check.py", &[]));
    // A line of `check.py` is the kind and how many of 8 files had each outcome.
    let line = |kind: &str| {
        let found = checked.lines().find(|line| line.split(' ').next() == Some(kind));
        found.unwrap_or_else(|| panic!("no {kind} in {checked}"))
    };
    for kind in [
        "plain",
        "trailer",
        "noeoi_zeros",
        "newline",
        "twice",
        "png",
        "png_trailer",
        "png_noiend",
        "gif",
        "gif_notrailer",
        "webp",
        "webp_trailer",
        "bmp",
    ] {
        assert!(line(kind).ends_with("{'same': 8}"), "{checked}");
    }
    // Complete images without the end marker, which Pillow refuses because it reads ahead.
    for kind in ["noeoi", "eoihalf", "noeoi_ff"] {
        assert!(
            line(kind).ends_with("{'only frostline takes it': 8}"),
            "{checked}"
        );
    }
    for kind in ["base", "prog", "rst", "q420", "grey"] {
        for damage in ["cut90", "cut99"] {
            assert!(
                line(&format!("{kind}_{damage}")).ends_with("{'both refuse': 8}"),
                "{checked}"
            );
        }
        // Pillow paints the rest gray.
        let stray = line(&format!("{kind}_rst"));
        assert!(stray.ends_with("{'only Pillow takes it': 8}"), "{checked}");
    }
    assert!(checked.contains("restart marker out of place"), "{checked}");
}

#[test]
fn pointers_of_git_lfs_are_named_with_the_command_that_fetches_the_images() {
    let case = Case::generate("16-lfs-pointers");
    let train = "train --model {model} --freeze features --epochs 1 --out t.onnx";
    for arguments in ["--data data", "--data data --on-bad-sample skip"] {
        let finished = run(&case, &format!("{train} {arguments}"));
        assert_ne!(finished.code, Some(0), "{finished:?}");
        assert!(finished.stderr.contains("git lfs pull"), "{finished:?}");
    }
    let text = assert_done(&run(&case, &format!("{train} --data some --on-bad-sample skip")));
    for words in ["an HTML page", "git lfs pull", "0001.jpg.icloud", "0002.jpg.dvc"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // A pointer instead of a shard.
    fs::create_dir(case.path("shards")).unwrap();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 10240\n";
    fs::write(case.path("shards/train-000.tar"), pointer).unwrap();
    let finished = run(&case, &format!("{train} --data shards"));
    assert_ne!(finished.code, Some(0), "{finished:?}");
    assert!(finished.stderr.contains("git lfs pull"), "{finished:?}");
}
