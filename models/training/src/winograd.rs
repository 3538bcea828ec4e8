//! Selects the convolutions for Winograd's algorithm. A fixed rule decides, so equal jobs compute equal bits.

use crate::TrainingError;
use frostline_graph::onnx::NodeProto;
use frostline_graph::{Model, Shapes};
use std::collections::BTreeSet;

/// Minimum number of channels on both sides. With fewer channels, the transforms cost more than the saved
/// multiplications.
const FEWEST_CHANNELS: usize = 64;

/// Minimum number of tiles in a batch. With fewer tiles, reading the transformed weights costs as much as the
/// products save.
const FEWEST_TILES: usize = 128;

/// Maximum number of input elements of a batch. The transformed tiles are 4 times larger and stay in memory
/// until the backward pass.
const MOST_ELEMENTS: usize = 64 << 20;

/// Returns the weights of 3 x 3 convolutions in `suffix` for which [Winograd's
/// algorithm](crate::StepSettings::winograd) is faster on a CPU with batches of `batch` rows. These
/// convolutions have stride 1 and many channels and tiles.
///
/// # Errors
/// Returns [`TrainingError::Graph`] if shapes cannot be inferred.
pub(crate) fn faster_by_winograd(suffix: &Model, batch: usize) -> Result<BTreeSet<String>, TrainingError> {
    let known = suffix.shapes(batch)?;
    let parameters = suffix.parameters().into_iter();
    let trained: BTreeSet<&str> = parameters.map(|weight| weight.name.as_str()).collect();
    let faster = suffix.nodes().iter().filter(|node| is_faster(&known, node));
    let weights = faster.filter_map(|node| node.input_name(1));
    let weights = weights.filter(|name| trained.contains(name));
    Ok(weights.map(str::to_owned).collect())
}

fn is_faster(known: &Shapes, node: &NodeProto) -> bool {
    let mut steps = ["strides", "dilations"]
        .into_iter()
        .filter_map(|name| node.ints(name));
    let plain = node.standard_operator() == Some("Conv")
        && node.int("group").unwrap_or(1) == 1
        && node
            .text("auto_pad")
            .is_none_or(|mode| matches!(mode, "NOTSET" | "VALID"))
        && steps.all(|steps| steps.iter().all(|step| *step == 1));
    let names = [node.input_name(0), node.input_name(1), node.output_name(0)];
    let dims = names.map(|name| known.dims(name?));
    let [Some(input), Some([m, c, 3, 3]), Some([n, _, height, width])] = dims else {
        return false;
    };
    plain
        && *m.min(c) >= FEWEST_CHANNELS
        && n * height.div_ceil(2) * width.div_ceil(2) >= FEWEST_TILES
        && input.iter().product::<usize>() <= MOST_ELEMENTS
}
