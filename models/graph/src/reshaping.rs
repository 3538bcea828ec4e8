//! Builds nodes that compute shapes from the batch size.

use crate::analysis::Analysis;
use crate::onnx::{NodeProto, TensorProto};
use crate::values::Dim;
use crate::{GraphError, build};
use frostline_tensor::Tensor;

/// Builds nodes and constants that compute `sizes` as the value `output`, each as `batch * times + fixed`.
/// The batch is the size of `axis` in `source`. With `scalar`, the output is a scalar with the only size.
/// Returns `None` if a size exceeds ONNX's integers.
pub(crate) fn sizes_of_batch(
    source: &str,
    axis: usize,
    output: &str,
    sizes: &[Dim],
    scalar: bool,
) -> Option<(Vec<NodeProto>, Vec<TensorProto>)> {
    let parts = sizes.iter().map(|size| match *size {
        Dim::Fixed(size) => (0, size),
        Dim::Batch(times) => (times, 0),
    });
    let (times, fixed): (Vec<usize>, Vec<usize>) = parts.unzip();
    if times.iter().all(|&times| times == 0) {
        return Some((vec![], vec![integers(output, &fixed, scalar)?]));
    }
    let [shape, index, batch, times_name] =
        ["source_shape", "batch_axis", "batch", "times"].map(|role| format!("{output}/{role}"));
    let [scaled, fixed_name, sum_name] = ["scaled", "fixed", "sizes"].map(|role| format!("{output}/{role}"));
    let nodes = vec![
        build::node("Shape", &[source], &[&shape]),
        build::node("Gather", &[&shape, &index], &[&batch]).with([build::int("axis", 0)]),
        build::node("Mul", &[&batch, &times_name], &[&scaled]),
        build::node("Add", &[&scaled, &fixed_name], &[output]).named(&sum_name),
    ];
    let weights = vec![
        integers(&index, &[axis], scalar)?,
        integers(&times_name, &times, scalar)?,
        integers(&fixed_name, &fixed, scalar)?,
    ];
    Some((nodes, weights))
}

/// Builds a vector of integers, or a scalar from a single integer.
fn integers(name: &str, values: &[usize], scalar: bool) -> Option<TensorProto> {
    let values: Vec<i64> = values
        .iter()
        .map(|&value| i64::try_from(value).ok())
        .collect::<Option<_>>()?;
    let dims = if scalar { vec![] } else { vec![values.len()] };
    Some(build::initializer(name, &Tensor::i64(dims, values).ok()?))
}

/// Builds the replacement of a `Shape` or `MemoryBound` node whose input is before the cut `from`.
pub(crate) fn replace_shape(
    analysis: &Analysis<'_>,
    from: &str,
    node: &NodeProto,
) -> Result<(Vec<NodeProto>, Vec<TensorProto>), GraphError> {
    let output = node.output_name(0).unwrap_or_default();
    let sizes = analysis.probes.sizes(output);
    let replacement = sizes.and_then(|sizes| sizes_of_batch(from, 0, output, &sizes, node.op_type == "Size"));
    replacement.ok_or_else(|| GraphError::Shape {
        node: node.label().into(),
        operator: node.op_type.clone(),
        why: format!("it requires an unknown shape from before cut `{from}`"),
    })
}
