//! Division of batches on a CPU.

use super::harness::{Net, PLAIN};
use crate::{BatchNorm, CpuSteps, StepSettings};
use frostline_graph::Model;
use frostline_graph::build::{ints, node};
use frostline_tensor::DType;

/// Two convolutions with a norm in between, for images of 32 x 32.
fn net(channels: usize) -> Model {
    let conv = |weight: &str, input: &str, output: &str| {
        node("Conv", &[input, weight], &[output]).with([ints("pads", &[1, 1, 1, 1])])
    };
    let norm = ["mean", "var", "scale", "bias"];
    norm.iter()
        .fold(Net::of(&[channels, 32, 32], DType::F32), |net, name| {
            net.weight(name, &[channels])
        })
        .weight("v", &[channels, channels, 3, 3])
        .weight("w", &[channels, channels, 3, 3])
        .node(conv("v", "x", "c"))
        .op("BatchNormalization", &["c", "scale", "bias", "mean", "var"], "n")
        .node(conv("w", "n", "d"))
        .op("GlobalAveragePool", &["d"], "p")
        .classified("p", channels)
        .model()
}

#[test]
fn large_batches_are_divided() {
    let of = |channels, batch| CpuSteps::of_batch(&net(channels), batch, &PLAIN.into()).unwrap();
    let small = of(4, 64);
    let large = of(32, 512);
    assert_eq!(small.rows, 64);
    assert!(!small.settings.accumulates);
    assert!(large.rows < 512 && large.settings.accumulates);
    let memory = large.memory.unwrap();
    assert!(memory.peak <= 64 << 20, "{memory:?}");
    assert_eq!(memory.waiting, (512 - large.rows) as u64 * 32 * 32 * 32 * 4);
    assert_eq!(
        [1, 2].map(|times| of(32, times * large.rows).rows),
        [large.rows; 2]
    );
    // Since every micro-batch reads all weights, division stops at 8 rows.
    assert_eq!([100, 15].map(|batch| of(256, batch).rows), [13, 15]);
}

#[test]
fn batch_statistics_prevent_division() {
    let settings = StepSettings {
        batch_norm: BatchNorm::Updated,
        ..PLAIN.into()
    };
    let steps = CpuSteps::of_batch(&net(32), 512, &settings).unwrap();
    assert_eq!((steps.rows, steps.settings.accumulates), (512, false));
}
