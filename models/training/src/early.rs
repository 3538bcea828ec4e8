//! Moves selections before normalizations, so that only the selected rows are normalized. For example, the
//! classifier of a vision transformer reads a single token, and the preceding norm would otherwise normalize
//! all tokens.

use crate::{Dropout, TrainingError};
use frostline_graph::onnx::NodeProto;
use frostline_graph::{Model, Shapes, build};

/// Node indices of a norm and the Gather along an outer axis that is the only reader.
struct Pair {
    norm: usize,
    gather: usize,
}

/// Returns `suffix` with Gathers moved before the preceding LayerNormalization, or `None` if there are no
/// candidates. A Gather is a candidate if it is the only reader of a norm without dropout. It moves if it
/// selects along an axis before the normalized axes.
pub(crate) fn select_early(suffix: &Model, dropouts: &[Dropout]) -> Result<Option<Model>, TrainingError> {
    let nodes = suffix.nodes();
    let candidates = (0..nodes.len()).filter_map(|norm| pair(suffix, norm, dropouts));
    let candidates: Vec<Pair> = candidates.collect();
    if candidates.is_empty() {
        return Ok(None);
    }
    let shapes = suffix.shapes(1)?;
    let mut proto = suffix.clone().into_proto();
    let Some(graph) = proto.graph.as_mut() else {
        return Ok(None);
    };
    let mut moved = nodes.to_vec();
    let mut firsts = Vec::new();
    for Pair { norm, gather } in candidates {
        let (Some(from), Some(to)) = (nodes.get(norm), nodes.get(gather)) else {
            continue;
        };
        let Some([first, second]) = swapped(from, to, &shapes) else {
            continue;
        };
        // The norm moves to the position of the Gather, after all inputs of both.
        if let Some(place) = moved.get_mut(norm) {
            *place = NodeProto::default();
        }
        if let Some(place) = moved.get_mut(gather) {
            *place = second;
        }
        firsts.push((gather, first));
    }
    firsts.sort_by_key(|(gather, _)| *gather);
    graph.node = ordered(moved, firsts);
    Ok(Some(Model::from_proto(proto)?))
}

/// Returns the remaining nodes, and inserts the nodes of `firsts` before the given indices, which are sorted.
fn ordered(moved: Vec<NodeProto>, firsts: Vec<(usize, NodeProto)>) -> Vec<NodeProto> {
    let mut firsts = firsts.into_iter().peekable();
    let mut nodes = Vec::with_capacity(moved.len());
    for (place, node) in moved.into_iter().enumerate() {
        nodes.extend(
            firsts
                .next_if(|(before, _)| *before == place)
                .map(|(_, first)| first),
        );
        nodes.extend(Some(node).filter(|node| !node.op_type.is_empty()));
    }
    nodes
}

fn pair(suffix: &Model, norm: usize, dropouts: &[Dropout]) -> Option<Pair> {
    let nodes = suffix.nodes();
    let node = nodes.get(norm)?;
    if node.standard_operator() != Some("LayerNormalization") {
        return None;
    }
    let [output] = node.output.as_slice() else {
        return None;
    };
    let is_read = suffix.outputs().iter().any(|given| given.name == *output);
    if is_read || dropouts.iter().any(|dropout| dropout.tensor == *output) {
        return None;
    }
    let mut readers = nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| node.input.contains(output));
    let (gather, reader) = readers.next().filter(|_| readers.next().is_none())?;
    let reads = reader.standard_operator() == Some("Gather") && reader.input_name(0) == Some(output);
    reads.then_some(Pair { norm, gather })
}

/// Returns the Gather of the norm's input and the norm of the result, or `None` if the Gather selects along a
/// normalized axis.
fn swapped(norm: &NodeProto, gather: &NodeProto, shapes: &Shapes) -> Option<[NodeProto; 2]> {
    let rank = shapes.dims(norm.input_name(0)?)?.len() as i64;
    let axes = [norm.int("axis").unwrap_or(-1), gather.int("axis").unwrap_or(0)];
    let [axis, gathered] = axes.map(|axis| if axis < 0 { axis + rank } else { axis });
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
