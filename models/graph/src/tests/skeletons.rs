//! Exports of the seven networks in the HAPI paper, without weights. Both exporters are covered.

use super::support::skeleton;
use crate::onnx::DimensionValue;
use std::collections::HashSet;

/// Number of cuts per network.
const CUTS: &[(&str, usize)] = &[
    ("alexnet", 20),
    ("resnet18", 22),
    ("resnet50", 38),
    ("vgg11", 28),
    ("vgg19", 44),
    ("densenet121", 24),
    ("vit_b_16", 32),
];

/// Evaluates a symbolic dimension of the files, such as `batch` or `12*batch`.
fn evaluated(symbol: &str, batch: i64) -> Option<i64> {
    symbol.split('*').try_fold(1, |all, factor| match factor.trim() {
        "batch" => Some(all * batch),
        number => number.parse::<i64>().ok().map(|number| all * number),
    })
}

mod needs_shared {
    use super::*;

    #[test]
    fn both_exports_have_the_known_cuts() {
        for &(name, cuts) in CUTS {
            for opset in ["opset17", "opset20"] {
                let model = skeleton(&format!("{name}.{opset}"));
                let network = model.network().unwrap();
                assert_eq!(network.cuts.len(), cuts, "{name}.{opset}");
                assert_eq!(network.output.shape.dims(), [1000]);
                let head = network.head.as_ref().unwrap();
                assert_eq!(
                    (head.operator.as_str(), head.classes),
                    ("Gemm", 1000),
                    "{name}.{opset}"
                );
                let (last, before) = network.cuts.split_last().unwrap();
                assert!(before.iter().all(|cut| cut.before_head) && !last.before_head);
                assert!(
                    network
                        .cuts
                        .windows(2)
                        .all(|pair| pair[0].compute_share <= pair[1].compute_share)
                );
                assert_eq!(last.compute_share, 1.0);
            }
        }
    }

    #[test]
    fn the_first_cuts_smaller_than_pixels_are_where_they_should_be() {
        let first = |name: &str| {
            let cuts = skeleton(name).network().unwrap().cuts;
            cuts.into_iter()
                .find(|cut| cut.bytes_per_sample < 602_112)
                .map(|cut| cut.bytes_per_sample)
        };
        let expected = [
            ("alexnet", 186_624),
            ("resnet18", 401_408),
            ("vgg11", 401_408),
            ("densenet121", 401_408),
            ("vit_b_16", 3_072),
        ];
        for (name, bytes) in expected {
            let found = first(&format!("{name}.opset20"));
            assert_eq!(found, Some(bytes), "{name}");
        }
    }

    #[test]
    fn inferred_shapes_are_those_the_exporter_noted() {
        for &(name, _) in CUTS {
            let model = skeleton(&format!("{name}.opset20"));
            let shapes = model.shapes(3).unwrap();
            let mut compared = 0;
            for noted in &model.graph().value_info {
                let tensor = noted
                    .r#type
                    .as_ref()
                    .and_then(|r#type| r#type.tensor_type.as_ref())
                    .unwrap();
                let Some(shape) = &tensor.shape else { continue };
                let dims: Option<Vec<i64>> = shape
                    .dim
                    .iter()
                    .map(|dim| match dim.value.as_ref()? {
                        DimensionValue::DimValue(size) => Some(*size),
                        DimensionValue::DimParam(symbol) => evaluated(symbol, 3),
                    })
                    .collect();
                // The file also contains shapes of values that the exporter has folded.
                let (Some(dims), Some(own)) = (dims, shapes.get(&noted.name)) else {
                    continue;
                };
                let own_dims: Vec<i64> = own.dims.iter().map(|&dim| dim as i64).collect();
                assert_eq!(
                    (own_dims, own.data_type),
                    (dims, tensor.elem_type),
                    "{name}: {}",
                    noted.name
                );
                compared += 1;
            }
            assert!(
                compared >= model.nodes().len() / 2,
                "{name}: compared {compared} of {} nodes",
                model.nodes().len()
            );
        }
    }

    #[test]
    fn every_value_of_the_older_exports_has_a_shape() {
        for &(name, _) in CUTS {
            let model = skeleton(&format!("{name}.opset17"));
            let shapes = model.shapes(2).unwrap();
            for node in model.nodes() {
                let dims = node.output.first().and_then(|output| shapes.dims(output));
                assert!(dims.is_some(), "{name}: {}", node.label());
            }
        }
    }

    #[test]
    fn parts_are_complete_at_every_cut() {
        for &(name, _) in CUTS {
            for opset in ["opset17", "opset20"] {
                let model = skeleton(&format!("{name}.{opset}"));
                let network = model.network().unwrap();
                for cut in network.cuts.iter().filter(|cut| cut.name != network.output.name) {
                    let prefix = model.slice(None, Some(&cut.name)).unwrap();
                    let suffix = model.slice(Some(&cut.name), None).unwrap();
                    let dims = |model: &crate::Model, name: &str| {
                        model.shapes(5).unwrap().dims(name).unwrap().to_vec()
                    };
                    assert_eq!(
                        dims(&prefix, &cut.name),
                        cut.shape.batched(5).dims(),
                        "{name}: {}",
                        cut.name
                    );
                    assert_eq!(
                        dims(&suffix, &network.output.name),
                        [5, 1000],
                        "{name}: {}",
                        cut.name
                    );
                    let weights: HashSet<&str> = [&prefix, &suffix]
                        .iter()
                        .flat_map(|part| part.initializers().into_keys())
                        .collect();
                    for parameter in model.parameters() {
                        assert!(
                            weights.contains(parameter.name.as_str()),
                            "{name}: {} lost",
                            parameter.name
                        );
                    }
                    assert!(suffix.graph().value_info.is_empty());
                }
            }
        }
    }

    #[test]
    fn a_middle_part_is_cut_from_both_sides() {
        let model = skeleton("vit_b_16.opset20");
        let middle = model.slice(Some("add_169"), Some("add_317")).unwrap();
        let network = middle.network().unwrap();
        assert_eq!(
            (network.input.name.as_str(), network.output.name.as_str()),
            ("add_169", "add_317")
        );
        assert_eq!(
            network.cuts.len(),
            2,
            "the cuts in a block are after the attention and at the end"
        );
        assert!(matches!(
            model.slice(Some("add_317"), Some("add_169")),
            Err(crate::GraphError::Order { from, to }) if from == "add_317" && to == "add_169"
        ));
    }

    #[test]
    fn parameters_are_found_by_operator_and_slot() {
        // ResNet-18 has 20 convolutions with folded bias and a classifier. ViT-B/16 has twelve blocks with 12
        // parameters, and 8 other parameters.
        for (name, count) in [("resnet18", 42), ("vit_b_16", 12 * 12 + 8)] {
            for opset in ["opset17", "opset20"] {
                let model = skeleton(&format!("{name}.{opset}"));
                let parameters = model.parameters();
                assert_eq!(parameters.len(), count, "{name}.{opset}: {parameters:#?}");
            }
        }
        let model = skeleton("densenet121.opset20");
        let statistics = |name: &str| name.contains("running_mean") || name.contains("running_var");
        let parameters = model.parameters();
        assert!(!parameters.iter().any(|parameter| statistics(&parameter.name)));
        let scale = model
            .nodes()
            .iter()
            .filter(|node| node.op_type == "BatchNormalization")
            .find_map(|node| node.input_name(1));
        assert!(
            parameters
                .iter()
                .any(|parameter| Some(parameter.name.as_str()) == scale)
        );
    }
}
