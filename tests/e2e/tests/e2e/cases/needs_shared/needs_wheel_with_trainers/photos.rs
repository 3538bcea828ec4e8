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
    assert!(checked.contains("\n 0 False\n"), "{checked}");
    let mut damaged = 0;
    for (kind, outcomes) in kinds(&checked) {
        match expected(kind) {
            Some(outcome) => assert_eq!(outcomes, [outcome], "{kind}: {checked}"),
            None => {
                let is_judged = outcomes.iter().all(|outcome| JUDGED.contains(outcome));
                assert!(is_judged, "{kind}: {checked}");
                damaged += 1;
            }
        }
    }
    assert_eq!(damaged, 20, "{checked}");
    for line in checked.lines().filter(|line| line.starts_with("      ")) {
        if line.contains("only Pillow takes it :") {
            assert!(line.contains("is damaged: "), "{line}");
        } else if let Some((_, share)) = line
            .rsplit_once(", ")
            .filter(|_| line.contains("pixels differ :"))
        {
            let percent: u32 = share.split(' ').next().unwrap().parse().unwrap();
            assert!(percent <= 5, "{line}");
        }
    }
    assert!(checked.contains("restart marker out of place"), "{checked}");
}

/// Outcomes of JPEGs with damaged image data. Only a part of the damage makes an invalid code. In the rest,
/// single blocks may differ: they contain coefficients outside the format's range, which libjpeg and zune-jpeg
/// store at different places or compute with another overflow.
const JUDGED: [&str; 4] = ["same", "both refuse", "only Pillow takes it", "pixels differ"];

/// Returns the kinds in the output of `check.py`, with the outcomes of their files.
fn kinds(checked: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    checked.lines().filter_map(|line| {
        let (kind, counts) = line.split_once(' ').filter(|(kind, _)| !kind.is_empty())?;
        let counts = counts.trim().strip_prefix('{')?;
        Some((kind, counts.split('\'').skip(1).step_by(2).collect()))
    })
}

/// Returns the outcome of all files of a kind. `None` if it depends on the damaged bytes.
fn expected(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "plain" | "trailer" | "noeoi_zeros" | "newline" | "twice" | "png" | "png_trailer" | "png_noiend"
        | "gif" | "gif_notrailer" | "webp" | "webp_trailer" | "bmp" => "same",
        // Complete images without the end marker, which Pillow refuses because it reads ahead.
        "noeoi" | "eoihalf" | "noeoi_ff" => "only frostline takes it",
        "png_cut" | "png_bit" | "png_ihdrcrc" | "gif_cut" | "webp_cut" | "bmp_cut" | "bmp_short1" => {
            "both refuse"
        }
        _ => match kind.rsplit_once('_')?.1 {
            "cut90" | "cut99" => "both refuse",
            // A stray restart marker. Pillow paints the rest of the image or interval gray and resumes at another
            // restart marker. zune-jpeg paints another part, so these photos are refused.
            "rst" => "only Pillow takes it",
            "bit" | "zeros" | "noise" | "lost" => return None,
            _ => panic!("unknown kind {kind}"),
        },
    })
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
