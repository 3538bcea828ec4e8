//! Suffixes with values in several floating-point types.

use super::harness::{Batch, Net, PLAIN, Trained, check_elements, random, values, weights};
use crate::TrainingGraph;
use frostline_engine::{Session, SessionOptions};
use frostline_graph::Model;
use frostline_graph::build::{int, node};
use frostline_graph::onnx::{NodeProto, data_type};
use frostline_graph::tensors::to_float;
use frostline_tensor::DType;

fn cast(from: &str, to: &str, data_type: i32) -> NodeProto {
    node("Cast", &[from], &[to]).with([int("to", data_type.into())])
}

/// The types that exporters write for half precision.
const HALF: [DType; 2] = [DType::F16, DType::Bf16];

/// Network with a region in the type `half`, whose weight is stored in this type.
fn with_half_region(dtype: DType, region: DType) -> Net {
    let code = frostline_graph::tensors::code_of(dtype);
    let half =
        |name: &str, dims: &[usize]| to_float(&random(dims, dtype, name.len() as u64), region).unwrap();
    Net::of(&[4], dtype)
        .probed(&[4])
        .node(cast("h", "half", frostline_graph::tensors::code_of(region)))
        .stored("w", &half("w", &[4, 5]))
        .stored("low", &half("low", &[]))
        .op("MatMul", &["half", "w"], "product")
        .op("Max", &["product", "low"], "bounded")
        .node(cast("bounded", "y", code))
        .stored("narrow", &half("narrow", &[5]))
        .node(cast("narrow", "wide", code))
        .op("Mul", &["y", "wide"], "z")
        .classified("z", 5)
}

#[test]
fn the_gradient_passes_casts_between_floating_point_types() {
    for region in HALF {
        check_elements(&with_half_region(DType::F64, region).model(), 3, 40);
    }
}

#[test]
fn half_precision_is_trained_in_single_precision_and_stored_as_before() {
    for region in HALF {
        let model = with_half_region(DType::F32, region).model();
        let graph = TrainingGraph::build(&model, 3, PLAIN).unwrap();
        assert_eq!(weights(&graph.state), ["probe", "w", "narrow", "head"]);
        assert!(graph.state.iter().all(|slot| slot.initial.dtype() == DType::F32));
        check_logits(&model, region);
        let next: Vec<_> = graph
            .state
            .iter()
            .map(|slot| {
                let moved = values(&slot.initial).iter().map(|value| value + 0.25).collect();
                (
                    slot.parameter.clone().unwrap(),
                    super::harness::tensor(slot.initial.shape().dims(), DType::F32, moved),
                )
            })
            .collect();
        let merged = model.merge(&next).unwrap();
        for (name, dtype) in [("w", region), ("narrow", region), ("head", DType::F32)] {
            assert_eq!(merged.weight(name).unwrap().dtype(), dtype, "{name}");
            assert_ne!(merged.weight(name).unwrap(), model.weight(name).unwrap());
        }
    }
}

/// Checks that training computes the logits of the network with a region in the type `region`.
fn check_logits(model: &Model, region: DType) {
    let batch = Batch::random(model, 3, 7);
    let mut trained = Trained::new(model, 3, PLAIN);
    let first = trained.step(&trained.initial(), &batch, 0.0);
    // On CPUs, ONNX Runtime multiplies f16, but not bf16.
    if region == DType::Bf16 {
        return;
    }
    let mut session = Session::open(&model.to_bytes().unwrap(), &SessionOptions::default()).unwrap();
    let outputs = session.run(&[("x", &batch.activations)]).unwrap();
    for (actual, expected) in values(&first.logits).iter().zip(values(&outputs[0].1)) {
        assert!((actual - expected).abs() < 1e-2, "{actual}, {expected}");
    }
}

#[test]
fn a_suffix_whose_input_is_in_half_precision_is_trained() {
    for half in HALF {
        let model = Net::of(&[4], half)
            .stored("w", &to_float(&random(&[4, 3], DType::F32, 3), half).unwrap())
            .op("MatMul", &["x", "w"], "logits")
            .model();
        let graph = TrainingGraph::build(&model, 2, PLAIN).unwrap();
        let input = graph
            .model
            .inputs()
            .find(|input| input.name == graph.input)
            .unwrap();
        assert_eq!(input.tensor().unwrap().elem_type, data_type::FLOAT);
    }
}

#[test]
fn a_cast_to_eight_bits_is_refused_by_name() {
    const FLOAT8: i32 = 17;
    let net = Net::of(&[4], DType::F32)
        .probed(&[4])
        .node(cast("h", "small", FLOAT8))
        .node(cast("small", "y", data_type::FLOAT))
        .classified("y", 4);
    let error = TrainingGraph::build(&net.model(), 2, PLAIN)
        .unwrap_err()
        .to_string();
    assert!(error.contains("operator Cast (node 'small')"), "{error}");
}
