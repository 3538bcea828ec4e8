//! Networks that are not complete classifiers: they have no head or accept images of any size.

use crate::harness::{Scratch, demo};
use frostline_e2e::finish;
use frostline_graph::Model;
use frostline_graph::build::{Axis, batched, value};
use frostline_graph::onnx::data_type;

/// Writes the bundled backbone up to the feature maps of the last stage to a file and returns the path.
fn headless(scratch: &Scratch) -> String {
    let file = scratch.path("headless.onnx");
    let whole = Model::read(demo("backbone.onnx")).unwrap();
    let maps = whole.network().unwrap().named("stage3.0").unwrap().name.clone();
    let features = whole.slice(None, Some(&maps)).unwrap();
    features.write(&file).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn a_backbone_is_trained_under_a_linear_head() {
    let scratch = Scratch::with_photos(4, 2);
    let model = headless(&scratch);
    let cut = Model::read(&model).unwrap().network().unwrap().output.name;
    let flags = ["--model", &model, "--freeze", &cut];
    let refused = scratch.train(&flags);
    scratch.assert_failed(&refused, &["no classifier head"]);
    let trained = scratch.train(&[&flags[..], &["--head", "linear"]].concat());
    assert_eq!(trained.code, Some(0), "{trained:?}");
    let tuned = Model::read(scratch.path("tuned.onnx"))
        .unwrap()
        .network()
        .unwrap();
    let classes = std::fs::read_dir(scratch.path("photos").join("train"))
        .unwrap()
        .count();
    assert_eq!(tuned.output.shape.dims(), [classes]);
}

#[test]
fn a_network_for_any_image_size_is_trained_at_the_one_that_is_given() {
    let scratch = Scratch::with_photos(4, 2);
    let whole = Model::read(demo("backbone.onnx")).unwrap();
    let input = whole.network().unwrap().input;
    let &[_, side, _] = input.shape.dims() else {
        panic!("expected an image as input");
    };
    let mut proto = whole.into_proto();
    let axes = ["batch", "channels", "height", "width"].map(|name| Axis::Named(name.to_owned()));
    proto.graph.as_mut().unwrap().input = vec![value(&input.name, data_type::FLOAT, &axes)];
    let file = scratch.path("any_size.onnx");
    Model::from_proto(proto).unwrap().write(&file).unwrap();
    let model = file.to_str().unwrap();
    scratch.assert_failed(
        &scratch.train(&["--model", model]),
        &["does not have a fixed size"],
    );
    let size = side.to_string();
    let losses = |flags: &[&str]| {
        let trained = scratch.train(flags);
        assert_eq!(trained.code, Some(0), "{trained:?}");
        crate::harness::series(&crate::harness::events(&trained), "step", "loss")
    };
    let sized = losses(&["--model", model, "--image-size", &size]);
    assert!(!sized.is_empty());
    assert_eq!(sized, losses(&[]));
}

#[test]
fn an_output_of_several_is_chosen_in_every_command() {
    let scratch = Scratch::with_photos(4, 2);
    let whole = Model::read(demo("backbone.onnx")).unwrap();
    let network = whole.network().unwrap();
    let (output, maps) = (
        network.output.name.clone(),
        network.named("stage3.0").unwrap().clone(),
    );
    let mut graph = whole.graph().clone();
    graph.output.insert(0, batched(&maps.name, maps.shape.dims()));
    let file = scratch.path("two.onnx");
    whole.with_graph(graph).unwrap().write(&file).unwrap();
    let model = file.to_str().unwrap();
    let photos = scratch.path("photos");
    let photos = photos.to_str().unwrap();
    let features = scratch.path("features.arrow");
    let features = features.to_str().unwrap();
    let run = |words: &[&str]| finish(crate::harness::frostline().args(words)).unwrap();
    let commands: [&[&str]; 4] = [
        &["model", "show", model],
        &["eval", "--model", model, "--data", photos],
        &["predict", "--model", model, photos],
        &["extract", "--model", model, "--data", photos, "--out", features],
    ];
    for words in commands {
        let refused = run(words);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains("has 2 outputs"), "{refused:?}");
        let chosen = run(&[words, &["--output", &output]].concat());
        // Predictions and evaluations need names of classes, which the network does not have.
        assert!(!chosen.stderr.contains("outputs ("), "{chosen:?}");
    }
    assert!(std::fs::exists(features).unwrap());
    let wrong = run(&["model", "show", model, "--output", "logit"]);
    assert!(
        wrong.stderr.contains("output `logit` does not exist"),
        "{wrong:?}"
    );
    let losses = |flags: &[&str]| {
        let trained = scratch.train(flags);
        assert_eq!(trained.code, Some(0), "{trained:?}");
        crate::harness::series(&crate::harness::events(&trained), "step", "loss")
    };
    assert_eq!(losses(&["--model", model, "--output", &output]), losses(&[]));
}
