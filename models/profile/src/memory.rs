use crate::{MeasuredCut, cut_tensors};
use frostline_graph::onnx::TensorProto;
use frostline_graph::tensors::dtype_of;
use frostline_graph::{GraphError, Model};
use frostline_wire::Linear;

/// Returns `cuts` with their tensors, and with the engine's memory usage in bytes from the input to each cut. The fixed
/// part contains the weights, and the part per sample contains the largest sum of live tensors. This is an estimate based
/// on the graph. It excludes kernel workspace and does not consider in-place operations.
///
/// # Errors
/// Returns the errors of [`Model::network`] and [`Model::slice`].
pub fn measured_cuts(model: &Model, cuts: &[String]) -> Result<Vec<MeasuredCut>, GraphError> {
    let network = model.network()?;
    let cuts = cuts.iter().map(|cut| {
        let part = model.slice(None, Some(cut))?;
        let weights: u64 = part.graph().initializer.iter().map(weight_bytes).sum();
        // Tensors with data-dependent sizes are not included.
        let alive = part.footprint().unwrap_or_default().alive;
        Ok(MeasuredCut {
            name: cut.clone(),
            tensors: cut_tensors(network.cut(cut)?),
            memory: Linear {
                fixed: weights as f64,
                per_sample: alive.per_sample as f64,
            },
        })
    });
    cuts.collect()
}

pub(crate) fn weight_bytes(weight: &TensorProto) -> u64 {
    let sizes = weight.dims.iter().map(|&dim| u64::try_from(dim).unwrap_or(0));
    let elements = sizes.fold(1_u64, u64::saturating_mul);
    elements.saturating_mul(element_bytes(weight.data_type))
}

fn element_bytes(data_type: i32) -> u64 {
    dtype_of(data_type).map_or(4, |dtype| dtype.size() as u64)
}
