//! Names, limits and nodes that joint cuts and joint inputs have in common.

use crate::build;
use crate::onnx::{NodeProto, TensorProto};
use crate::values::signed;
use frostline_tensor::Shape;

/// Maximum number of tensors of a cut. A network has up to this number of inputs as well.
pub(crate) const MOST_TENSORS: usize = 8;

/// Prefix of the nodes and tensors that joint cuts and joint inputs add. No exporter uses it.
pub(crate) const ADDED: &str = "frostline.joint/";

/// Returns the name of a node or tensor of the joint cut `cut`.
pub(crate) fn added(role: &str, cut: &str, number: usize) -> String {
    format!("{ADDED}{role}/{cut}/{number}")
}

/// Returns true for a node that the joint cut `cut` added.
pub(crate) fn is_of(node: &NodeProto, cut: &str) -> bool {
    let Some(name) = node.name.strip_prefix(ADDED) else {
        return false;
    };
    let inner = name.split_once('/').and_then(|(_, rest)| rest.rsplit_once('/'));
    name == cut || inner.is_some_and(|(inner, _)| inner == cut)
}

/// First version of ONNX's operators in which `Split` takes the sizes as an input.
const SPLIT_WITH_INPUT: i64 = 13;

/// Returns the target of a `Reshape` to samples of this shape. Zero stands for the batch.
pub(crate) fn batched(row: &Shape) -> Vec<i64> {
    let row = row.dims().iter().map(|dim| signed(*dim));
    std::iter::once(0).chain(row).collect()
}

/// Returns the node that divides axis 1 of `whole` into `parts` with these sizes, and the weights that it reads.
/// `lengths` contains the sizes.
pub(crate) fn split(
    whole: &str,
    parts: &[&str],
    sizes: &[i64],
    lengths: TensorProto,
    opset: i64,
) -> (NodeProto, Vec<TensorProto>) {
    let axis = build::int("axis", 1);
    if opset < SPLIT_WITH_INPUT {
        let node = build::node("Split", &[whole], parts).with([axis, build::ints("split", sizes)]);
        return (node, Vec::new());
    }
    let node = build::node("Split", &[whole, &lengths.name], parts).with([axis]);
    (node, vec![lengths])
}
