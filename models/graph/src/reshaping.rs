//! Computing the shape of a value that is no longer there from the batch of the value that is.

use crate::analysis::Analysis;
use crate::onnx::{NodeProto, TensorProto};
use crate::probes::Dim;
use crate::{GraphError, build};
use frostline_tensor::Tensor;

/// Replaces `Shape` and `Size` nodes over values before a cut.
pub(crate) struct ShapeOf<'a> {
    analysis: &'a Analysis<'a>,
    from: &'a str,
}

impl<'a> ShapeOf<'a> {
    pub(crate) fn new(analysis: &'a Analysis<'a>, from: &'a str) -> Self {
        Self { analysis, from }
    }

    /// Nodes and constants that give the output of `node` from the batch of the cut: `batch * times + fixed`.
    pub(crate) fn replace(&self, node: &NodeProto) -> Result<(Vec<NodeProto>, Vec<TensorProto>), GraphError> {
        let output = node.output_name(0).unwrap_or_default();
        let unknown = || GraphError::Shape {
            node: node.label().into(),
            operator: node.op_type.clone(),
            why: format!(
                "it wants a shape from before cut `{}` that is not known",
                self.from
            ),
        };
        let sizes = self.analysis.probes.sizes(output).ok_or_else(unknown)?;
        let times: Vec<usize> = sizes
            .iter()
            .map(|size| if let Dim::Batch(times) = size { *times } else { 0 })
            .collect();
        let fixed: Vec<usize> = sizes
            .iter()
            .map(|size| if let Dim::Fixed(size) = size { *size } else { 0 })
            .collect();
        let scalar = node.op_type == "Size";
        let constant = |name: &str, values: &[usize]| integers(name, values, scalar).ok_or_else(unknown);
        if times.iter().all(|&times| times == 0) {
            return Ok((vec![], vec![constant(output, &fixed)?]));
        }
        let name = |role: &str| format!("{output}/{role}");
        let (shape, zero, batch) = (name("cut_shape"), name("zero"), name("batch"));
        let (times_name, scaled, fixed_name) = (name("times"), name("scaled"), name("fixed"));
        let nodes = vec![
            build::node("Shape", &[self.from], &[&shape]),
            build::node("Gather", &[&shape, &zero], &[&batch]).with([build::int("axis", 0)]),
            build::node("Mul", &[&batch, &times_name], &[&scaled]),
            build::node("Add", &[&scaled, &fixed_name], &[output]),
        ];
        let weights = vec![
            constant(&zero, &[0])?,
            constant(&times_name, &times)?,
            constant(&fixed_name, &fixed)?,
        ];
        Ok((nodes, weights))
    }
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
