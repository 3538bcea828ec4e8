//! The work of nodes, for comparing how deep cuts lie.

use crate::onnx::NodeProto;
use crate::operators;
use crate::values::{Probes, Sizes};

/// Multiply-adds of one node for a batch of the smaller probe size; for operators without any, the elements they write or
/// (pools, reductions) read. Zero when a shape is unknown.
pub(crate) fn work(node: &NodeProto, probes: &Probes) -> f64 {
    let sizes = Sizes { node, probes };
    operators::find(node).map_or_else(|| sizes.touched(), |operator| (operator.work)(&sizes))
}
