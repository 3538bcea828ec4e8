use frostline_graph::onnx::TensorProto;
use frostline_graph::tensors::dtype_of;
use frostline_graph::{GraphError, Model, Shapes};
use frostline_wire::Linear;
use std::collections::{HashMap, HashSet};

/// Bytes an engine holds to get from the input to each of `cuts`: the weights it needs (fixed), and the largest sum of tensors that are
/// alive at once (per sample). An estimate from the graph: what the engine's kernels take beside that is not in it, nor is
/// what it saves by writing results over their inputs.
///
/// # Errors
/// Those of [`Model::slice`] and [`Model::shapes`].
pub fn memory(model: &Model, cuts: &[String]) -> Result<Vec<Linear>, GraphError> {
    let of_cut = |cut: &String| {
        let part = model.slice(None, Some(cut))?;
        let weights: u64 = part.graph().initializer.iter().map(weight_bytes).sum();
        Ok(Linear {
            fixed: weights as f64,
            per_sample: peak(&part)? as f64,
        })
    };
    cuts.iter().map(of_cut).collect()
}

fn weight_bytes(weight: &TensorProto) -> u64 {
    let sizes = weight.dims.iter().map(|&dim| u64::try_from(dim).unwrap_or(0));
    let elements = sizes.fold(1_u64, u64::saturating_mul);
    elements.saturating_mul(element_bytes(weight.data_type))
}

fn element_bytes(data_type: i32) -> u64 {
    dtype_of(data_type).map_or(4, |dtype| dtype.size() as u64)
}

/// The largest sum of live tensors while `part` runs, per sample: what a second sample adds.
fn peak(part: &Model) -> Result<u64, GraphError> {
    let (one, two) = (part.shapes(1)?, part.shapes(2)?);
    let size = |name: &str| bytes(&two, name).saturating_sub(bytes(&one, name));
    let mut last_reader: HashMap<&str, usize> = HashMap::new();
    for (index, node) in part.nodes().iter().enumerate() {
        last_reader.extend(node.input.iter().map(|name| (name.as_str(), index)));
    }
    last_reader.extend(
        part.outputs()
            .iter()
            .map(|output| (output.name.as_str(), usize::MAX)),
    );
    let mut live: u64 = part.inputs().map(|input| size(&input.name)).sum();
    let mut peak = live;
    for (index, node) in part.nodes().iter().enumerate() {
        let made = node.output.iter().filter(|name| !name.is_empty());
        live += made.map(|name| size(name)).sum::<u64>();
        peak = peak.max(live);
        let inputs: HashSet<&String> = node.input.iter().collect();
        let read = inputs
            .into_iter()
            .filter(|name| last_reader.get(name.as_str()) == Some(&index));
        let unread = node
            .output
            .iter()
            .filter(|name| !last_reader.contains_key(name.as_str()));
        let gone: u64 = read.chain(unread).map(|name| size(name)).sum();
        live = live.saturating_sub(gone);
    }
    Ok(peak)
}

fn bytes(shapes: &Shapes, name: &str) -> u64 {
    let Some(shape) = shapes.get(name) else { return 0 };
    let elements = shape
        .dims
        .iter()
        .fold(1_u64, |product, &dim| product.saturating_mul(dim as u64));
    elements.saturating_mul(element_bytes(shape.data_type))
}
