//! Axes of size 0. ONNX Runtime has kernels that leave their output unwritten when they are given one (a batched MatMul over 0 columns),
//! so that it shows what memory held before, and kernels that never return (Conv over 0 channels). No classifier needs such an axis:
//! only empty lists of axes and sizes are taken, where an operator reads a list.

use super::Inadmissible;
use super::refusal::shown;
use crate::onnx::NodeProto;
use crate::values::{Probes, Value};

/// The inputs of an operator that are lists of axes, sizes or places, which may be empty.
fn reads_list(operator: &str, slot: usize) -> bool {
    match operator {
        "Cast" | "Concat" | "ConstantOfShape" | "Identity" => true,
        "Expand" | "Pad" | "Reshape" | "Squeeze" | "Tile" | "Unsqueeze" => slot == 1,
        "Resize" | "Slice" | "Upsample" => slot > 0,
        other => slot == 1 && other.starts_with("Reduce"),
    }
}

/// Checks a node whose outputs `probes` knows.
pub(super) fn check(node: &NodeProto, probes: &Probes) -> Result<(), Inadmissible> {
    let operator = node.standard_operator().unwrap_or_default();
    let refuse = |tensor: &str| Inadmissible::Empty {
        node: shown(node.label()),
        operator: shown(operator),
        tensor: shown(tensor),
    };
    for (slot, name) in node.input.iter().enumerate() {
        match axes_of_empty(name, probes) {
            None => {}
            Some(1) if reads_list(operator, slot) => {}
            Some(_) => return Err(refuse(name)),
        }
    }
    let empty = |name: &&String| axes_of_empty(name, probes).is_some_and(|axes| axes != 1);
    node.output
        .iter()
        .find(empty)
        .map_or(Ok(()), |name| Err(refuse(name)))
}

/// How many axes a value has of which one is of size 0, for some batch.
fn axes_of_empty(name: &str, probes: &Probes) -> Option<usize> {
    let (small, large) = probes.both(name);
    [small, large].into_iter().find_map(|value: &Value| {
        let dims = value.dims.as_ref()?;
        dims.contains(&0).then_some(dims.len())
    })
}
