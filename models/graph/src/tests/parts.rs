//! Executes slices and compares them with the complete network.

use super::support::{assert_parts_equal_whole, filled, skeleton, squeezenet};
use crate::Model;

/// Returns cuts at the given fractions of the list.
fn some_cuts(model: &Model, shares: &[f64]) -> Vec<String> {
    let cuts = model.network().unwrap().cuts;
    let inner = &cuts[..cuts.len() - 1];
    let place = |share: &f64| (share * (inner.len() - 1) as f64).round() as usize;
    shares
        .iter()
        .map(|share| inner[place(share)].name.clone())
        .collect()
}

fn all_cuts(model: &Model) -> Vec<String> {
    let network = model.network().unwrap();
    network
        .cuts
        .into_iter()
        .map(|cut| cut.name)
        .filter(|name| *name != network.output.name)
        .collect()
}

mod needs_shared {
    use super::*;

    #[test]
    fn squeezenet_at_every_cut() {
        for (file, known) in [
            ("squeezenet1_1.onnx", "52"),
            ("squeezenet1_1_pooled.onnx", "features"),
        ] {
            let model = squeezenet(file);
            let cuts = all_cuts(&model);
            assert!(cuts.len() > 15 && cuts.iter().any(|cut| cut == known), "{cuts:?}");
            assert_parts_equal_whole(&model, &cuts);
        }
    }

    #[test]
    fn resnet18_at_every_cut() {
        let model = skeleton("resnet18.opset20");
        assert_parts_equal_whole(&filled(&model), &all_cuts(&model));
        let model = skeleton("resnet18.opset17");
        assert_parts_equal_whole(&filled(&model), &some_cuts(&model, &[0.2, 0.7]));
    }

    #[test]
    fn densenet_at_a_few_cuts() {
        for opset in ["opset17", "opset20"] {
            let model = skeleton(&format!("densenet121.{opset}"));
            assert_parts_equal_whole(&filled(&model), &some_cuts(&model, &[0.15, 0.7]));
        }
    }

    #[test]
    fn resnet50_and_alexnet_at_a_few_cuts() {
        for name in ["resnet50.opset20", "alexnet.opset17"] {
            let model = skeleton(name);
            assert_parts_equal_whole(&filled(&model), &some_cuts(&model, &[0.3, 0.9]));
        }
    }

    #[test]
    fn vgg_at_one_cut() {
        let model = skeleton("vgg11.opset20");
        assert_parts_equal_whole(&filled(&model), &some_cuts(&model, &[0.8]));
    }

    #[test]
    fn vision_transformer_at_one_cut() {
        for opset in ["opset17", "opset20"] {
            let model = skeleton(&format!("vit_b_16.{opset}"));
            assert_parts_equal_whole(&filled(&model), &some_cuts(&model, &[0.4]));
        }
    }
}
