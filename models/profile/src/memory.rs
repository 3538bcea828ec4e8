use frostline_graph::onnx::TensorProto;
use frostline_graph::tensors::dtype_of;
use frostline_graph::{GraphError, Model};
use frostline_wire::Linear;

/// Bytes an engine holds to get from the input to each of `cuts`: the weights it needs (fixed), and the largest sum of tensors that are
/// alive at once (per sample). An estimate from the graph: what the engine's kernels take beside that is not in it, nor is
/// what it saves by writing results over their inputs.
///
/// # Errors
/// Those of [`Model::slice`].
pub fn memory(model: &Model, cuts: &[String]) -> Result<Vec<Linear>, GraphError> {
    let of_cut = |cut: &String| {
        let part = model.slice(None, Some(cut))?;
        let weights: u64 = part.graph().initializer.iter().map(weight_bytes).sum();
        // What is not known of sizes that depend on the data is left out.
        let alive = part.footprint().unwrap_or_default().alive;
        Ok(Linear {
            fixed: weights as f64,
            per_sample: alive.per_sample as f64,
        })
    };
    cuts.iter().map(of_cut).collect()
}

pub(crate) fn weight_bytes(weight: &TensorProto) -> u64 {
    let sizes = weight.dims.iter().map(|&dim| u64::try_from(dim).unwrap_or(0));
    let elements = sizes.fold(1_u64, u64::saturating_mul);
    elements.saturating_mul(element_bytes(weight.data_type))
}

fn element_bytes(data_type: i32) -> u64 {
    dtype_of(data_type).map_or(4, |dtype| dtype.size() as u64)
}
