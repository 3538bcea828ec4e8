//! Opens a batch of 1 that an exporter fixed in a network.
//!
//! The first axis of the input becomes the batch. `Reshape` targets for one sample get an open axis for the
//! batch, and constants that are concatenated with samples, such as a class token, are expanded. The result
//! is then verified: samples are followed through the network, and if they do not stay independent up to the
//! output, the network is refused and the error names the node.

use crate::onnx::{DimensionValue, GraphProto, NodeProto, TensorProto, ValueInfo};
use crate::reshaping::sizes_of_batch;
use crate::values::{Dim, InferredValues, Probes, RowUse, RowUses, SampleAxis, axis_of, signed};
use crate::{GraphError, Model, build};

pub(crate) fn open_batch(model: &Model) -> Result<Model, GraphError> {
    let one = InferredValues::infer(model, 1)?;
    let mut graph = model.graph().clone();
    let nodes = std::mem::take(&mut graph.node);
    graph.value_info.clear();
    graph
        .input
        .iter_mut()
        .chain(&mut graph.output)
        .for_each(open_first_axis);
    let bare = model.with_unchecked(graph.clone());
    let rows = RowUses::start(bare.inputs().map(|input| input.name.as_str()));
    let mut opening = Opening {
        one,
        probes: Probes::start(&bare)?,
        rows,
        graph,
    };
    for node in nodes {
        opening.rewrite(node)?;
    }
    opening.finish(model)
}

/// Names the batch axis if it is fixed to 1. Weights that old files list as inputs are changed as well, which
/// has no effect because the initializer defines their shape.
fn open_first_axis(value: &mut ValueInfo) {
    let shape = value
        .r#type
        .as_mut()
        .and_then(|r#type| r#type.tensor_type.as_mut())
        .and_then(|tensor| tensor.shape.as_mut());
    if let Some(first) = shape.and_then(|shape| shape.dim.first_mut())
        && first.value == Some(DimensionValue::DimValue(1))
    {
        *first = DimensionValue::DimParam(build::BATCH.into()).into();
    }
}

fn refused(node: &NodeProto, why: impl std::fmt::Display) -> GraphError {
    GraphError::FixedBatch {
        batch: 1,
        why: format!(
            "node `{}` ({}) does not support more samples: {why}",
            node.label(),
            node.op_type
        ),
    }
}

struct Opening {
    /// Values of the network for one sample.
    one: InferredValues,
    probes: Probes,
    rows: RowUses,
    graph: GraphProto,
}

impl Opening {
    fn rewrite(&mut self, mut node: NodeProto) -> Result<(), GraphError> {
        match node.standard_operator() {
            Some("Reshape") => self.retarget(&mut node)?,
            Some("Concat") => self.expand_constants(&mut node)?,
            _ => {}
        }
        self.push(node)
    }

    fn push(&mut self, node: NodeProto) -> Result<(), GraphError> {
        self.probes.step(&node).map_err(|error| match error {
            GraphError::Shape { why, .. } => refused(&node, why),
            other => other,
        })?;
        self.rows.step(&node, &self.probes);
        self.graph.node.push(node);
        Ok(())
    }

    fn add(&mut self, weight: TensorProto) -> Result<(), GraphError> {
        self.probes.add(&weight)?;
        self.graph.initializer.push(weight);
        Ok(())
    }

    /// Opens the axis of a constant target that contains the samples.
    fn retarget(&mut self, node: &mut NodeProto) -> Result<(), GraphError> {
        let (Some(data), Some(target), Some(output)) =
            (node.input_name(0), node.input_name(1), node.output_name(0))
        else {
            return Ok(());
        };
        let (RowUse::PerSample(samples), true) = (self.rows.get(data), self.probes.is_fixed(target)) else {
            return Ok(());
        };
        let (Some(dims), Some(after)) = (self.probes.dims(data), self.one.dims(output)) else {
            return Ok(());
        };
        let axis = open_axis(&dims, samples, after)
            .ok_or_else(|| refused(node, format!("no axis of {after:?} can hold the batch")))?;
        let mut sizes: Vec<i64> = after.iter().map(|&size| signed(size)).collect();
        if let Some(open) = sizes.get_mut(axis) {
            *open = -1;
        }
        let name = format!("{output}/open_shape");
        self.add(build::integers(&name, &sizes))?;
        if let Some(slot) = node.input.get_mut(1) {
            *slot = name;
        }
        Ok(())
    }

    /// Expands constants with a batch of 1 that are concatenated with samples.
    fn expand_constants(&mut self, node: &mut NodeProto) -> Result<(), GraphError> {
        let joined = node.input.iter().find_map(|name| match self.rows.get(name) {
            RowUse::PerSample(samples) => Some((name.clone(), samples)),
            _ => None,
        });
        let Some((source, samples)) =
            joined.filter(|(_, samples)| *samples == SampleAxis::plain(samples.axis))
        else {
            return Ok(());
        };
        let rank = self.probes.small_dims(&source).map_or(0, <[usize]>::len);
        if axis_of(node.int("axis").unwrap_or(0), rank).ok() == Some(samples.axis) {
            return Ok(());
        }
        for slot in 0..node.input.len() {
            let Some(constant) = node.input_name(slot).map(str::to_owned) else {
                continue;
            };
            let one_sample = self
                .probes
                .small_dims(&constant)
                .and_then(|dims| dims.get(samples.axis))
                == Some(&1);
            if self.rows.get(&constant) == RowUse::Independent && one_sample {
                let expanded = format!("{}/{slot}", node.output_name(0).unwrap_or_default());
                self.expand(&constant, (&source, samples.axis, rank), &expanded)?;
                if let Some(input) = node.input.get_mut(slot) {
                    *input = expanded;
                }
            }
        }
        Ok(())
    }

    fn expand(
        &mut self,
        constant: &str,
        (source, axis, rank): (&str, usize, usize),
        output: &str,
    ) -> Result<(), GraphError> {
        let mut sizes = vec![Dim::Fixed(1); rank];
        if let Some(batch) = sizes.get_mut(axis) {
            *batch = Dim::Batch(1);
        }
        let shape = format!("{output}/shape");
        let (nodes, weights) = sizes_of_batch(source, axis, &shape, &sizes, false).unwrap_or_default();
        weights.into_iter().try_for_each(|weight| self.add(weight))?;
        nodes.into_iter().try_for_each(|node| self.push(node))?;
        self.push(build::node("Expand", &[constant, &shape], &[output]))
    }

    /// Returns the opened network if its samples stay independent up to the output.
    fn finish(mut self, model: &Model) -> Result<Model, GraphError> {
        crate::form::drop_unread(&mut self.graph);
        let opened = model.with_graph(self.graph)?;
        let analysis = crate::analysis::Analysis::run(&opened)?;
        let output = opened.output_name()?;
        if analysis.row_of(output).is_some() {
            return Ok(opened);
        }
        let mut path: Vec<usize> = analysis.data_path(output, None).into_iter().collect();
        path.sort_unstable();
        let culprit = path
            .iter()
            .filter_map(|&index| opened.nodes().get(index))
            .find(|node| {
                node.output_name(0)
                    .is_some_and(|name| analysis.rows.get(name) == RowUse::Mixed)
            });
        Err(culprit.map_or_else(
            || GraphError::FixedBatch {
                batch: 1,
                why: format!("the batch is not the first axis of the output `{output}`"),
            },
            |node| refused(node, "it is not known to process samples independently"),
        ))
    }
}

/// Returns the axis of `after` for the samples of a value with dimensions `dims`. `after` is the target with
/// a batch of 1. The row-major order leaves few choices. An axis of size 1 is preferred, followed by the
/// current axis of the samples. The function avoids the last axis, because it contains the features.
fn open_axis(dims: &[Dim], samples: SampleAxis, after: &[usize]) -> Option<usize> {
    (0..after.len())
        .filter(|&axis| fits(dims, samples, after, axis) == Some(true))
        .min_by_key(|axis| {
            (
                after.get(*axis) != Some(&1),
                !(*axis == samples.axis && after.get(*axis) == Some(&(samples.outer * samples.inner))),
                axis + 1 == after.len(),
                *axis != samples.axis,
                *axis,
            )
        })
}

/// Returns true if the samples of a value with dimensions `dims` can be along `axis` of `after`. Returns
/// `None` if the steps outside the batch do not fit this axis.
fn fits(dims: &[Dim], samples: SampleAxis, after: &[usize], axis: usize) -> Option<bool> {
    let outside = samples.steps_outside(dims)?;
    let before = after
        .iter()
        .take(axis)
        .try_fold(1_usize, |all, &size| all.checked_mul(size))?;
    let outer = (before > 0 && outside.is_multiple_of(before)).then(|| outside / before)?;
    let size = *after.get(axis)?;
    (outer > 0 && size.is_multiple_of(outer)).then_some(())?;
    // The elements inside the batch must match as well; the rest then follows.
    let inside = after
        .iter()
        .skip(axis + 1)
        .try_fold(size / outer, |all, &size| all.checked_mul(size))?;
    Some(Some(inside) == samples.steps_inside(dims))
}
