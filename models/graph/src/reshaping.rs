//! Computing shapes from the batch of a value that is there.

use crate::analysis::Analysis;
use crate::onnx::{NodeProto, TensorProto};
use crate::values::Dim;
use crate::{GraphError, build};
use frostline_tensor::Tensor;

/// Nodes and constants that give `sizes` as the value `output`, from the axis of `source` that is the batch: `batch * times + fixed`.
/// A `scalar` is the only one of its sizes. `None` when a size does not fit ONNX's integers.
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
    let constant = |name: &str, values: &[usize]| integers(name, values, scalar);
    if times.iter().all(|&times| times == 0) {
        return Some((vec![], vec![constant(output, &fixed)?]));
    }
    let name = |role: &str| format!("{output}/{role}");
    let (shape, index, batch) = (name("source_shape"), name("batch_axis"), name("batch"));
    let (times_name, scaled, fixed_name) = (name("times"), name("scaled"), name("fixed"));
    let nodes = vec![
        build::node("Shape", &[source], &[&shape]),
        build::node("Gather", &[&shape, &index], &[&batch]).with([build::int("axis", 0)]),
        build::node("Mul", &[&batch, &times_name], &[&scaled]),
        build::node("Add", &[&scaled, &fixed_name], &[output]).named(&name("sizes")),
    ];
    let weights = vec![
        constant(&index, &[axis])?,
        constant(&times_name, &times)?,
        constant(&fixed_name, &fixed)?,
    ];
    Some((nodes, weights))
}

/// A vector of integers, or its only one as a scalar.
fn integers(name: &str, values: &[usize], scalar: bool) -> Option<TensorProto> {
    let values: Vec<i64> = values
        .iter()
        .map(|&value| i64::try_from(value).ok())
        .collect::<Option<_>>()?;
    let dims = if scalar { vec![] } else { vec![values.len()] };
    Some(build::initializer(name, &Tensor::i64(dims, values).ok()?))
}

/// What stands in for a `Shape` or `Size` node over a value that lies before cut `from`.
pub(crate) fn replace_shape(
    analysis: &Analysis<'_>,
    from: &str,
    node: &NodeProto,
) -> Result<(Vec<NodeProto>, Vec<TensorProto>), GraphError> {
    let output = node.output_name(0).unwrap_or_default();
    let unknown = || GraphError::Shape {
        node: node.label().into(),
        operator: node.op_type.clone(),
        why: format!("it wants a shape from before cut `{from}` that is not known"),
    };
    let sizes = analysis.probes.sizes(output).ok_or_else(unknown)?;
    sizes_of_batch(from, 0, output, &sizes, node.op_type == "Size").ok_or_else(unknown)
}
