//! The work of nodes, for comparing how deep cuts lie and for bounding what a row may take.

use crate::onnx::NodeProto;
use crate::operators;
use crate::values::{Probes, Sizes};

/// Multiply-adds of one node for a batch of the smaller probe size; for operators without any, the elements they write or
/// (pools, reductions) read. Zero when a shape is unknown.
pub(crate) fn work(node: &NodeProto, probes: &Probes) -> f64 {
    let sizes = Sizes { node, probes };
    operators::find(node).map_or_else(|| sizes.touched(), |operator| (operator.work)(&sizes))
}

/// Multiply-adds that a processor does while a kernel without products takes in hand one element: about a nanosecond.
const VISIT: f64 = 100.0;

/// How long a node keeps a processor for a batch of the smaller probe size, as the multiply-adds that take as long.
pub(crate) fn time(node: &NodeProto, probes: &Probes) -> f64 {
    let sizes = Sizes { node, probes };
    match operators::find(node) {
        Some(operator) if operator.reads_shape => sizes.output(),
        Some(operator) => {
            let visits = sizes.touched().max(sizes.output() * (operator.taps)(node));
            (operator.work)(&sizes).max(VISIT * visits)
        }
        None => VISIT * sizes.touched(),
    }
}
