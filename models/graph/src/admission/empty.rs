//! Refuses axes of size 0. Some kernels of ONNX Runtime do not write the output in this case and thereby
//! expose previous contents of memory (a batched MatMul over 0 columns). Some kernels never return (Conv over
//! 0 channels). Classifiers do not need such axes. The only exceptions are empty lists of axes and sizes, if
//! the operator reads a list.

use super::Inadmissible;
use super::refusal::shown;
use crate::onnx::NodeProto;
use crate::values::{InferredValue, Probes};

/// Returns true if an input is a list of axes, sizes or positions, which may be empty.
fn reads_list(operator: &str, slot: usize) -> bool {
    match operator {
        "Cast" | "Concat" | "ConstantOfShape" | "Identity" => true,
        "Expand" | "Pad" | "Reshape" | "Squeeze" | "Tile" | "Unsqueeze" => slot == 1,
        "Resize" | "Slice" | "Upsample" => slot > 0,
        other => slot == 1 && other.starts_with("Reduce"),
    }
}

/// Checks a node whose outputs are known to `probes`.
pub(super) fn check(node: &NodeProto, probes: &Probes) -> Result<(), Inadmissible> {
    let operator = node.standard_operator().unwrap_or_default();
    let inputs = node.input.iter().enumerate().filter(|(slot, name)| {
        axes_of_empty(name, probes).is_some_and(|axes| axes != 1 || !reads_list(operator, *slot))
    });
    let outputs = node
        .output
        .iter()
        .filter(|name| axes_of_empty(name, probes).is_some_and(|axes| axes != 1));
    match inputs.map(|(_, name)| name).chain(outputs).next() {
        None => Ok(()),
        Some(tensor) => Err(Inadmissible::EmptyAxis {
            node: shown(node.label()),
            operator: shown(operator),
            tensor: shown(tensor),
        }),
    }
}

/// Returns the number of axes of a value if one of them has size 0 at either batch size.
fn axes_of_empty(name: &str, probes: &Probes) -> Option<usize> {
    let (small, large) = probes.both(name);
    [small, large].into_iter().find_map(|value: &InferredValue| {
        let dims = value.dims.as_ref()?;
        dims.contains(&0).then_some(dims.len())
    })
}
