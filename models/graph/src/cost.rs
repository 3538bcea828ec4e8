//! Cost of nodes, used to compare the depth of cuts and to limit the work per sample.

use crate::onnx::NodeProto;
use crate::operators;
use crate::values::{Probes, Sizes};

/// Returns the multiply-adds of a node for a batch of the smaller probe size. Operators without multiply-adds
/// count the elements that they write or, for pools and reductions, read. Returns 0 if a shape is unknown.
pub(crate) fn work(node: &NodeProto, probes: &Probes) -> f64 {
    let sizes = Sizes { node, probes };
    operators::find(node).map_or_else(|| sizes.touched(), |operator| (operator.work)(&sizes))
}

/// Multiply-adds that take as long as processing an element in a kernel without products. The time is about a
/// nanosecond.
const VISIT: f64 = 100.0;

/// Returns the processor time of a node for a batch of the smaller probe size, expressed in multiply-adds.
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
