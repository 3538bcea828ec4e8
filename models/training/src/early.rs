//! Moves selections before normalizations, so that only the selected rows are normalized. For example, the
//! classifier of a vision transformer reads a single token, and the preceding norm would otherwise normalize
//! all tokens.

use crate::{Dropout, TrainingError};
use frostline_graph::onnx::NodeProto;
use frostline_graph::{GraphChanges, Links, Model, Shapes, build, from_end};

/// Node indices of a norm and the Gather along an outer axis that is the only reader.
struct GatheredNorm {
    norm: usize,
    gather: usize,
}

/// Returns `suffix` with Gathers moved before the preceding LayerNormalization, or `None` if there are no
/// candidates. A Gather is a candidate if it is the only reader of a norm without dropout. It moves if it
/// selects along an axis before the normalized axes.
pub(crate) fn select_early(suffix: &Model, dropouts: &[Dropout]) -> Result<Option<Model>, TrainingError> {
    let nodes = suffix.nodes();
    let links = Links::of_model(suffix);
    let norms = nodes.iter().enumerate();
    let candidates = norms.filter_map(|(norm, node)| gathered_norm(&links, norm, node, dropouts));
    let candidates: Vec<GatheredNorm> = candidates.collect();
    if candidates.is_empty() {
        return Ok(None);
    }
    let shapes = suffix.shapes(1)?;
    let mut changes = GraphChanges::default();
    for GatheredNorm { norm, gather } in candidates {
        if let (Some(from), Some(to)) = (nodes.get(norm), nodes.get(gather))
            && let Some(nodes) = swapped(from, to, &shapes)
        {
            changes.remove([norm]);
            // The norm moves to the position of the Gather, after all inputs of both.
            changes.replace(gather, to, nodes);
        }
    }
    let graph = changes.applied_to(suffix.graph());
    Ok(Some(suffix.with_graph(graph)?))
}

fn gathered_norm(
    links: &Links<'_>,
    norm: usize,
    node: &NodeProto,
    dropouts: &[Dropout],
) -> Option<GatheredNorm> {
    if node.standard_operator() != Some("LayerNormalization") {
        return None;
    }
    let [output] = node.output.as_slice() else {
        return None;
    };
    if dropouts.iter().any(|dropout| dropout.tensor == *output) {
        return None;
    }
    let gather = links.only_reader(output)?;
    let reader = links.node(gather)?;
    let reads = reader.standard_operator() == Some("Gather") && reader.input_name(0) == Some(output);
    reads.then_some(GatheredNorm { norm, gather })
}

/// Returns the Gather of the norm's input and the norm of the result, or `None` if the Gather selects along a
/// normalized axis.
fn swapped(norm: &NodeProto, gather: &NodeProto, shapes: &Shapes) -> Option<[NodeProto; 2]> {
    let rank = shapes.dims(norm.input_name(0)?)?.len() as i64;
    let axes = [norm.int("axis").unwrap_or(-1), gather.int("axis").unwrap_or(0)];
    let [axis, gathered] = axes.map(|axis| from_end(axis, rank));
    if gathered >= axis {
        return None;
    }
    let between = format!("{}/early", norm.output_name(0)?);
    let mut first = gather.clone();
    *first.input.first_mut()? = norm.input_name(0)?.to_owned();
    first.output = vec![between.clone()];
    let mut second = norm.clone();
    *second.input.first_mut()? = between;
    second.output.clone_from(&gather.output);
    // Count the axis from the end, because the Gather may have removed an axis.
    second.attribute.retain(|attribute| attribute.name != "axis");
    second.attribute.push(build::int("axis", axis - rank));
    Some([first, second])
}
