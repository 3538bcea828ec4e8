//! Suffixes of real networks in `f64`: the SqueezeNet of the photos and the ResNet18 skeletons. Gradients are
//! compared weight by weight.

use super::harness::{Batch, PLAIN, Trained, in_f64, random, tensor, values, weights};
use crate::TrainingGraph;
use frostline_graph::onnx::data_type;
use frostline_graph::{Cut, Model, build};
use frostline_needs::shared_file;
use frostline_tensor::{DType, Tensor};
use std::path::Path;

/// Returns the suffix after `cut` with a head for five classes.
fn suffix(model: &Model, cut: &str) -> Model {
    model.replace_head(5, 1).unwrap().slice(Some(cut), None).unwrap()
}

/// Moves each weight along a random direction and compares the slope of the loss with the gradient.
fn check_directions(model: &Model, rows: usize) {
    // Since many weights move together, a larger step would push some ReLU over the kink.
    const STEP: f64 = 1e-8;
    let model = in_f64(model);
    let mut trained = Trained::new(&model, rows, PLAIN);
    let state = trained.initial();
    let batch = Batch::random(&model, rows, 3);
    let gradients = trained.gradients(&state, &batch);
    for (slot, gradient) in gradients.iter().enumerate() {
        let direction = values(&random(&[gradient.len()], DType::F64, slot as u64));
        let mut loss = |by: f64| {
            let before = values(&state[slot]);
            let after = before
                .iter()
                .zip(&direction)
                .map(|(weight, part)| weight + by * part)
                .collect();
            let mut state = state.clone();
            state[slot] = tensor(state[slot].shape().dims(), DType::F64, after);
            trained.step(&state, &batch, 0.0).loss
        };
        let expected = (loss(STEP) - loss(-STEP)) / (2.0 * STEP);
        let actual: f64 = gradient
            .iter()
            .zip(&direction)
            .map(|(slope, part)| slope * part)
            .sum();
        let size = gradient.iter().map(|slope| slope * slope).sum::<f64>().sqrt();
        assert!(size > 0.0, "slot {slot} has no gradient at all");
        let error = (expected - actual).abs();
        assert!(
            error < 1e-6 + 1e-4 * size,
            "slot {slot}: {actual}, by differences {expected}"
        );
    }
}

/// Checks the suffixes after `cuts`. All weights of a suffix must be trained.
fn check_cuts(model: &Model, cuts: &[&str]) {
    for cut in cuts {
        let suffix = suffix(model, cut);
        let graph = TrainingGraph::build(&suffix, 2, PLAIN).unwrap();
        let stored = suffix
            .graph()
            .initializer
            .iter()
            .filter(|stored| stored.data_type == data_type::FLOAT);
        assert_eq!(weights(&graph.state).len(), stored.count(), "behind {cut}");
        check_directions(&suffix, 2);
    }
}

/// Fills a skeleton with random weights with He's variance.
fn filled(skeleton: Model) -> Model {
    let mut proto = skeleton.into_proto();
    for (seed, stored) in proto.graph.as_mut().unwrap().initializer.iter_mut().enumerate() {
        let dims: Vec<usize> = stored
            .dims
            .iter()
            .map(|dim| usize::try_from(*dim).unwrap())
            .collect();
        if !stored.raw_data.is_empty() || dims.iter().product::<usize>() <= 16 {
            continue;
        }
        let inputs: usize = dims.iter().skip(1).product();
        let width = if dims.len() > 1 {
            (6.0 / inputs as f64).sqrt()
        } else {
            0.01
        };
        let numbers = values(&random(&dims, DType::F32, seed as u64))
            .iter()
            .map(|n| (n * width) as f32)
            .collect();
        *stored = build::initializer(&stored.name, &Tensor::f32(dims, numbers).unwrap());
    }
    Model::from_proto(proto).unwrap()
}

fn skeleton(shared: &Path, export: &str) -> Model {
    Model::read(shared.join("models/skeletons").join(export)).unwrap()
}

/// Trains ViT-B/16 after `cut`. All `count` weights must change and the loss must decrease.
fn train_vit(model: &Model, cut: &str, count: usize) {
    let suffix = filled(suffix(model, cut));
    let mut trained = Trained::new(&suffix, 2, PLAIN);
    assert_eq!(weights(&trained.graph.state).len(), count, "behind {cut}");
    let mut state = trained.initial();
    let batch = Batch::random(&suffix, 2, 3);
    let mut losses = Vec::new();
    for _ in 0..3 {
        let step = trained.step(&state, &batch, 0.01);
        let moved = state
            .iter()
            .zip(&step.state)
            .all(|(before, after)| before != after);
        assert!(moved, "behind {cut}");
        losses.push(step.loss);
        state = step.state;
    }
    assert!(losses[2] < losses[0], "behind {cut}: {losses:?}");
}

/// Returns a ResNet18 and the cuts of the network.
fn resnet18(shared: &Path, export: &str) -> (Model, Vec<Cut>) {
    let model = filled(skeleton(shared, export));
    let cuts = model.network().unwrap().cuts;
    (model, cuts)
}

mod needs_shared {
    use super::*;

    #[test]
    fn squeezenet_with_a_convolution_as_head() {
        let shared = shared_file("");
        let model = Model::read(shared.join("data/squeezenet1_1.onnx")).unwrap();
        check_cuts(&model, &["52", "46"]);
    }

    #[test]
    fn squeezenet_with_a_linear_head() {
        let shared = shared_file("");
        let model = Model::read(shared.join("data/squeezenet1_1_pooled.onnx")).unwrap();
        check_cuts(&model, &["features", "pooled", "52", "27"]);
    }

    #[test]
    fn squeezenet_can_be_trained_behind_every_cut() {
        let shared = shared_file("");
        for (name, last) in [
            ("squeezenet1_1.onnx", usize::MAX),
            ("squeezenet1_1_pooled.onnx", 6),
        ] {
            let model = Model::read(shared.join("data").join(name))
                .unwrap()
                .replace_head(5, 1)
                .unwrap();
            let cuts = model.network().unwrap().cuts;
            for cut in cuts.iter().rev().filter(|cut| cut.before_head).take(last) {
                let suffix = model.slice(Some(&cut.name), None).unwrap();
                TrainingGraph::build(&suffix, 64, PLAIN).unwrap();
            }
        }
    }

    #[test]
    fn resnet18_head_and_last_block() {
        let shared = shared_file("");
        let (model, cuts) = resnet18(&shared, "resnet18.opset20.onnx");
        let block = cuts.iter().find(|cut| cut.shape.dims() == [512, 7, 7]).unwrap();
        let head = cuts.iter().rfind(|cut| cut.shape.elements() == Ok(512)).unwrap();
        check_cuts(&model, &[&head.name, &block.name]);
    }

    #[test]
    fn resnet18_last_stage() {
        let shared = shared_file("");
        let (model, cuts) = resnet18(&shared, "resnet18.opset17.onnx");
        let stage = cuts
            .iter()
            .rfind(|cut| cut.shape.dims() == [256, 14, 14])
            .unwrap();
        check_cuts(&model, &[&stage.name]);
    }

    #[test]
    fn vit_at_the_papers_cut_and_a_block_earlier() {
        let shared = shared_file("");
        for (export, cut) in [
            (
                "vit_b_16.opset17.onnx",
                "/encoder/layers/encoder_layer_11/Add_1_output_0",
            ),
            ("vit_b_16.opset20.onnx", "add_1797"),
        ] {
            let model = skeleton(&shared, export);
            let cuts = model.network().unwrap().cuts;
            let tokens: Vec<&Cut> = cuts.iter().filter(|cut| cut.shape.dims() == [197, 768]).collect();
            let place = tokens.iter().position(|other| other.name == cut).unwrap();
            train_vit(&model, cut, 4);
            train_vit(&model, &tokens[place - 2].name, 16);
        }
    }
}
