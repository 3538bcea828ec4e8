//! The work of nodes, for comparing how deep cuts lie.

use crate::onnx::NodeProto;
use crate::probes::Probes;

/// Multiply-adds of one node for a batch of the smaller probe size; for operators without any, the elements they write or
/// (pools, reductions) read. Zero when a shape is unknown.
pub(crate) fn work(node: &NodeProto, probes: &Probes) -> f64 {
    let elements = |name: Option<&str>| name.and_then(|name| probes.small_dims(name)).map_or(0.0, count);
    let output = elements(node.output_name(0));
    let (input, weight) = (elements(node.input_name(0)), elements(node.input_name(1)));
    let axis = |slot: usize, axis: usize| {
        let dims = node.input_name(slot).and_then(|name| probes.small_dims(name));
        dims.and_then(|dims| dims.get(axis).copied())
            .map_or(1.0, |size| count(&[size]))
    };
    match node.standard_operator() {
        Some("Conv") => output * weight / axis(1, 0).max(1.0),
        Some("ConvTranspose") => input * weight / axis(1, 0).max(1.0),
        Some("Gemm") => output * axis(0, usize::from(node.int("transA").unwrap_or(0) == 0)),
        Some("MatMul") => {
            let rank = node
                .input_name(0)
                .and_then(|name| probes.small_dims(name))
                .map_or(0, <[usize]>::len);
            output * axis(0, rank.saturating_sub(1))
        }
        _ => output.max(input),
    }
}

#[allow(clippy::cast_precision_loss)]
fn count(dims: &[usize]) -> f64 {
    dims.iter().map(|&dim| dim as f64).product()
}
