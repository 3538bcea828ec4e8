//! Networks that ONNX Runtime computes wrongly once it optimizes them.

use crate::harness::{Scratch, demo, frostline};
use frostline_e2e::finish;
use frostline_graph::Model;
use frostline_graph::build::{integers, ints, node};
use std::fs;

/// Writes the bundled backbone to a file, with a pad and a max pool before the first layer, and returns the
/// path. ONNX Runtime merges the pad into the pool, which ignores its own padding instead of reading zeros.
fn wrong_when_optimized(scratch: &Scratch) -> String {
    let whole = Model::read(demo("backbone.onnx")).unwrap();
    let input = whole.network().unwrap().input.name;
    let mut graph = whole.graph().clone();
    for name in graph.node.iter_mut().flat_map(|node| &mut node.input) {
        if *name == input {
            *name = "pooled_pixels".into();
        }
    }
    let pool = [ints("kernel_shape", &[3, 3]), ints("strides", &[1, 1])];
    let nodes = [
        node("Pad", &[&input, "pads"], &["padded_pixels"]),
        node("MaxPool", &["padded_pixels"], &["pooled_pixels"]).with(pool),
    ];
    graph.node.splice(..0, nodes);
    graph
        .initializer
        .push(integers("pads", &[0, 0, 1, 1, 0, 0, 1, 1]));
    let file = scratch.path("wrong.onnx");
    whole.with_graph(graph).unwrap().write(&file).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn layers_that_optimizations_change_are_refused() {
    let scratch = Scratch::with_photos(3, 2);
    let model = wrong_when_optimized(&scratch);
    let said = [
        "'features' differ",
        "without optimizations: off by",
        "an earlier cut",
    ];
    for split in ["none", "stage1.0", "features"] {
        let refused = scratch.train(&["--model", &model, "--split", split]);
        scratch.assert_failed(&refused, &said);
        assert_eq!(
            refused.failure().unwrap()["next"][0],
            serde_json::json!({"set": {"freeze": null}})
        );
    }
    let (photos, out) = (scratch.path("photos"), scratch.path("tuned.parquet"));
    let mut command = frostline();
    command.args(["extract", "--json", "--model", &model, "--cut", "features"]);
    command.arg("--data").arg(&photos).arg("--out").arg(&out);
    scratch.assert_failed(&finish(&mut command).unwrap(), &said);
    let mut command = frostline();
    command.args(["extract", "--json", "--cut", "features"]);
    command.arg("--model").arg(demo("backbone.onnx"));
    command.arg("--data").arg(&photos).arg("--out").arg(&out);
    assert_eq!(finish(&mut command).unwrap().code, Some(0));
}

#[test]
fn a_warning_replaces_the_comparison_if_no_image_can_be_decoded() {
    let scratch = Scratch::with_photos(3, 2);
    for class in 0..3 {
        for photo in fs::read_dir(scratch.class("train", class)).unwrap() {
            fs::write(photo.unwrap().path(), "no image").unwrap();
        }
    }
    let mut command = frostline();
    command.args([
        "extract",
        "--json",
        "--on-bad-sample",
        "skip",
        "--cut",
        "features",
    ]);
    command.arg("--model").arg(demo("backbone.onnx"));
    command.arg("--data").arg(scratch.path("photos"));
    let finished = finish(command.arg("--out").arg(scratch.path("rows.parquet"))).unwrap();
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let said = format!("{}{}", finished.stdout, finished.stderr);
    assert!(
        said.contains("none of the first 8 images can be decoded"),
        "{said}"
    );
}
