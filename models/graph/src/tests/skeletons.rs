//! The seven networks of the paper, both exports, without weights.

use super::support::skeleton;

/// Cuts of each network, and the shapes of some.
const CUTS: &[(&str, usize)] = &[
    ("alexnet", 20),
    ("resnet18", 22),
    ("resnet50", 38),
    ("vgg11", 28),
    ("vgg19", 44),
    ("densenet121", 24),
    ("vit_b_16", 32),
];

#[test]
fn both_exports_have_the_known_cuts() {
    for &(name, cuts) in CUTS {
        for opset in ["opset17", "opset20"] {
            let Some(model) = skeleton(&format!("{name}.{opset}")) else {
                return;
            };
            let network = model.network().unwrap();
            let names: Vec<String> = network
                .cuts
                .iter()
                .map(|c| format!("{} {} {:.2} {}", c.name, c.shape, c.compute_share, c.before_head))
                .collect();
            println!(
                "{name} {opset} {} {:?} {names:#?}",
                network.cuts.len(),
                network.head
            );
            assert_eq!(network.cuts.len(), cuts, "{name}.{opset}: {names:#?}");
        }
    }
}
