//! Limits on the work per sample and on the memory for cuts.

use super::support::skeleton;
use crate::build::{batched, model, node};
use crate::onnx::{GraphProto, NodeProto};
use crate::{GraphError, Inadmissible, Model, ModelLimits};

/// Network `x -> Relu -> ... -> y`. The names have `length` letters.
fn chain(nodes: usize, length: usize) -> Model {
    let name = |index: usize| match index {
        0 => "x".to_owned(),
        _ if index == nodes => "y".to_owned(),
        _ => format!("{index:0length$}"),
    };
    let link = |index: usize| node("Relu", &[&name(index)], &[&name(index + 1)]);
    let graph = GraphProto {
        node: (0..nodes).map(link).collect::<Vec<NodeProto>>(),
        input: vec![batched("x", &[4])],
        output: vec![batched("y", &[4])],
        ..GraphProto::default()
    };
    Model::from_proto(model(17, graph)).unwrap()
}

#[test]
fn memory_for_cuts_is_bounded() {
    let limits = ModelLimits::default();
    let check = |nodes, length| chain(nodes, length).network().unwrap().check_cuts(&limits);
    check(1000, 20).unwrap();
    let too_many = check(3000, 20);
    assert!(
        matches!(&too_many, Err(GraphError::Inadmissible(Inadmissible::Count { what, .. })) if *what == "cuts"),
        "{too_many:?}"
    );
    let too_long = check(1000, 900);
    assert!(
        matches!(
            too_long,
            Err(GraphError::Inadmissible(Inadmissible::CutBytes { .. }))
        ),
        "{too_long:?}"
    );
}

mod needs_shared {
    use super::*;

    /// The most expensive network has 20 billion multiply-adds.
    #[test]
    fn real_networks_take_a_twentieth_of_the_work_that_a_row_may() {
        let limits = ModelLimits {
            sample_work: ModelLimits::default().sample_work / 20,
            ..ModelLimits::default()
        };
        for name in [
            "alexnet",
            "resnet18",
            "resnet50",
            "vgg11",
            "vgg19",
            "densenet121",
            "vit_b_16",
        ] {
            for opset in ["opset17", "opset20"] {
                let model = skeleton(&format!("{name}.{opset}"));
                let checked = crate::admission::footprint::check(&model, &limits);
                checked.unwrap_or_else(|error| panic!("{name}.{opset}: {error}"));
                model.network().unwrap().check_cuts(&limits).unwrap();
            }
        }
    }
}
