//! Selections made before what is done to each row, so that it is done to the rows alone that are selected: of a vision transformer's
//! tokens the classifier reads one, and the norm before it would take all of them.

use crate::{Dropout, TrainingError};
use frostline_graph::onnx::NodeProto;
use frostline_graph::{Model, Shapes, build};

/// A norm whose result only a Gather along one of its outer axes reads: the places of both among the nodes.
struct Pair {
    norm: usize,
    gather: usize,
}

/// `suffix` with the Gather in front of the LayerNormalization wherever it reads nothing else, and does not cut through what is normalized; `None`
/// where that is nowhere. What a dropout is at stays.
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
    let (mut moved, mut firsts) = (nodes.to_vec(), Vec::new());
    for Pair { norm, gather } in candidates {
        let (Some(from), Some(to)) = (nodes.get(norm), nodes.get(gather)) else {
            continue;
        };
        let Some([first, second]) = swapped(from, to, &shapes) else {
            continue;
        };
        // The norm's inputs are there where the Gather's are.
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

/// The nodes that are left, each of `firsts` in front of the place it belongs to; these are in order.
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

/// The Gather of the norm's input, and the norm of what it gives; `None` where the Gather cuts through what is normalized.
fn swapped(norm: &NodeProto, gather: &NodeProto, shapes: &Shapes) -> Option<[NodeProto; 2]> {
    let rank = shapes.dims(norm.input_name(0)?)?.len() as i64;
    let counted = |axis: i64| if axis < 0 { axis + rank } else { axis };
    let axis = counted(norm.int("axis").unwrap_or(-1));
    if counted(gather.int("axis").unwrap_or(0)) >= axis {
        return None;
    }
    let between = format!("{}/early", norm.output_name(0)?);
    let mut first = gather.clone();
    *first.input.first_mut()? = norm.input_name(0)?.to_owned();
    first.output = vec![between.clone()];
    let mut second = norm.clone();
    *second.input.first_mut()? = between;
    second.output.clone_from(&gather.output);
    // From the end, since the Gather may have taken an axis away.
    second.attribute.retain(|attribute| attribute.name != "axis");
    second.attribute.push(build::int("axis", axis - rank));
    Some([first, second])
}
