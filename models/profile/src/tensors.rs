use frostline_graph::Cut;
use frostline_wire::TensorInfo;

/// Returns the tensors that a joint cut concatenates, or an empty list for a cut with a single tensor.
pub fn cut_tensors(cut: &Cut) -> Vec<TensorInfo> {
    let tensors = cut.tensors.iter().map(|tensor| TensorInfo {
        name: tensor.name.clone(),
        dtype: tensor.dtype,
        shape: tensor.shape.dims().to_vec(),
    });
    tensors.collect()
}
