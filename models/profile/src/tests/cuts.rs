//! Tests of candidates and memory, based on seven networks.

use crate::candidates::MOST_CANDIDATES;
use crate::{candidates, efficient_rows, measured_cuts};
use bytes::Bytes;
use frostline_graph::onnx::GraphProto;
use frostline_graph::{Model, Network, build};
use frostline_tensor::Tensor;

const NETWORKS: [&str; 7] = [
    "alexnet",
    "resnet18",
    "resnet50",
    "vgg11",
    "vgg19",
    "densenet121",
    "vit_b_16",
];

/// Reads a skeleton network. Only call this in modules named `needs_shared`.
fn skeleton(name: &str) -> (Model, Network) {
    let path = frostline_needs::shared_file(&format!("models/skeletons/{name}.onnx"));
    let model = Model::read(path).unwrap();
    let network = model.network().unwrap();
    (model, network)
}

fn last_frozen(network: &Network) -> String {
    let mut cuts = network.cuts.iter().rev();
    cuts.find(|cut| cut.before_head).unwrap().name.clone()
}

fn names(model: &Model, network: &Network, freeze: &str) -> Vec<String> {
    let cuts = candidates(model, network, freeze).unwrap();
    cuts.into_iter().map(|cut| cut.name).collect()
}

/// Creates a model that multiplies each of `positions` vectors by a 4 x 4 matrix.
fn product(positions: usize) -> Model {
    let weight = Tensor::f32([4, 4], vec![0.1; 16]).unwrap();
    let graph = GraphProto {
        name: "product".to_owned(),
        node: vec![build::node("MatMul", &["x", "w"], &["y"])],
        initializer: vec![build::initializer("w", &weight)],
        input: vec![build::batched("x", &[positions, 4])],
        output: vec![build::batched("y", &[positions, 4])],
        ..GraphProto::default()
    };
    Model::from_proto(build::model(17, graph)).unwrap()
}

#[test]
fn rows_of_a_run_are_as_many_as_reading_the_weights_is_worth() {
    let rows = [1, 100, 400, 1000].map(|positions| efficient_rows(&product(positions), 16).unwrap());
    assert_eq!(rows, [16, 8, 2, 1]);
}

#[test]
fn a_network_with_hundreds_of_cuts_is_thinned_out() {
    const LAYERS: usize = 100;
    let mut node = Vec::new();
    let mut initializer = Vec::new();
    for layer in 0..LAYERS {
        let from = format!("x{layer}");
        let to = format!("x{}", layer + 1);
        let weight = format!("w{layer}");
        node.push(build::node("MatMul", &[&from, &weight], &[&to]));
        initializer.push(build::initializer(
            &weight,
            &Tensor::f32([4, 4], vec![0.1; 16]).unwrap(),
        ));
    }
    let graph = GraphProto {
        name: "deep".to_owned(),
        node,
        initializer,
        input: vec![build::batched("x0", &[4])],
        output: vec![build::batched(&format!("x{LAYERS}"), &[4])],
        ..GraphProto::default()
    };
    let model = Model::from_proto(build::model(17, graph)).unwrap();
    let network = model.network().unwrap();
    assert_eq!(network.cuts.len(), LAYERS);
    let kept = candidates(&model, &network, "x100").unwrap();
    assert_eq!(kept.len(), MOST_CANDIDATES);
    assert_eq!(kept.last().unwrap().name, "x100");
}

#[test]
fn memory_counts_weights_once_and_tensors_while_they_live() {
    // x[8] -> Relu a -> MatMul [8,2] b -> Add(b, b) c
    let graph = GraphProto {
        name: "small".to_owned(),
        node: vec![
            build::node("Relu", &["x"], &["a"]),
            build::node("MatMul", &["a", "w"], &["b"]),
            build::node("Add", &["b", "b"], &["c"]),
        ],
        initializer: vec![build::initializer(
            "w",
            &Tensor::f32([8, 2], vec![0.0; 16]).unwrap(),
        )],
        input: vec![build::batched("x", &[8])],
        output: vec![build::batched("c", &[2])],
        ..GraphProto::default()
    };
    let proto = build::model(17, graph);
    let bytes = Bytes::from(Model::from_proto(proto).unwrap().to_bytes().unwrap());
    let model = Model::from_bytes(bytes).unwrap();
    let found = measured_cuts(&model, &["a".to_owned(), "c".to_owned()]).unwrap();
    // Up to `a`, x and a are live (16 floats). Up to `c`, the maximum is the same.
    assert_eq!((found[0].memory.fixed, found[0].memory.per_sample), (0.0, 64.0));
    assert_eq!((found[1].memory.fixed, found[1].memory.per_sample), (64.0, 64.0));
    assert!(measured_cuts(&model, &["nowhere".to_owned()]).is_err());
}

mod needs_shared {
    use super::*;

    #[test]
    fn networks_with_large_dense_layers_run_many_rows() {
        let rows = NETWORKS.map(|name| {
            let (model, _) = skeleton(&format!("{name}.opset17"));
            efficient_rows(&model, 16).unwrap()
        });
        assert_eq!(rows, [16, 4, 4, 16, 8, 2, 4]);
    }

    #[test]
    fn every_network_has_a_handful_of_candidates_in_both_exports() {
        for name in NETWORKS {
            let mut sizes: Vec<Vec<usize>> = Vec::new();
            for opset in ["opset17", "opset20"] {
                let (model, network) = skeleton(&format!("{name}.{opset}"));
                let freeze = last_frozen(&network);
                let cuts = candidates(&model, &network, &freeze).unwrap();
                eprintln!(
                    "{name}.{opset}: {} of {}: {:?}",
                    cuts.len(),
                    network.cuts.len(),
                    cuts.iter()
                        .map(|cut| format!("{} {}", cut.name, cut.bytes_per_sample))
                        .collect::<Vec<_>>()
                );
                assert!(
                    (7..=MOST_CANDIDATES).contains(&cuts.len()),
                    "{name}.{opset}: {}",
                    cuts.len()
                );
                assert_eq!(cuts.last().unwrap().name, freeze, "{name}.{opset}");
                // Each omitted cut has an alternative that is not larger and adds up to 8 % of the
                // computation.
                for cut in network.cuts.iter().take_while(|cut| cut.name != freeze) {
                    let better = cuts.iter().any(|kept| {
                        kept.bytes_per_sample <= cut.bytes_per_sample
                            && kept.compute_share <= cut.compute_share + 0.08
                    });
                    assert!(better, "{name}.{opset}: {}", cut.name);
                }
                sizes.push(cuts.iter().map(|cut| cut.bytes_per_sample).collect());
            }
            assert_eq!(
                sizes[0], sizes[1],
                "{name}: both exports have the same candidates"
            );
        }
    }

    #[test]
    fn an_activation_stands_for_the_product_before_it() {
        let (model, network) = skeleton("alexnet.opset20");
        let kept = names(&model, &network, &last_frozen(&network));
        let operator = |name: &String| {
            let node = model.nodes().iter().find(|node| node.output.contains(name));
            node.unwrap().op_type.clone()
        };
        assert!(
            kept.iter()
                .map(operator)
                .all(|operator| operator != "Conv" && operator != "Gemm")
        );
    }

    #[test]
    fn the_freeze_cut_stays_whatever_follows_it() {
        let (model, network) = skeleton("resnet18.opset20");
        // Output of a convolution. The following activation would be a better candidate.
        let freeze = &network.cuts[0].name;
        assert_eq!(names(&model, &network, freeze), [freeze.as_str()]);
        assert!(candidates(&model, &network, "nowhere").is_err());
    }

    #[test]
    fn memory_of_a_real_network_is_what_its_widest_layers_take() {
        let (model, network) = skeleton("vgg19.opset20");
        let first = network.cuts[1].name.clone();
        let found = measured_cuts(&model, &[first]).unwrap();
        // Two tensors with 64 x 224 x 224 floats, which are the output of a convolution and the activation.
        assert_eq!(found[0].memory.per_sample, 2.0 * 4.0 * 64.0 * 224.0 * 224.0);
    }
}
