//! Restores weights that were omitted from an export.

use anyhow::{Context, Result};
use bytes::Bytes;
use frostline_graph::Model;
use frostline_graph::onnx::TensorProto;

/// Number of distinct random values. For speed, larger weights repeat them, starting at different positions.
const BLOCK: usize = 65_537;

/// Draws the weights that models/zoo/classifiers.py omitted, using the mean and standard deviation from each
/// doc string (`normal MEAN SPREAD`).
pub(crate) fn filled(model: Model) -> Result<Model> {
    let block = normal(2 * BLOCK);
    let mut proto = model.into_proto();
    let graph = proto.graph.as_mut().context("a model without a graph")?;
    let constants = graph.node.iter_mut().flat_map(|node| &mut node.attribute);
    let constants = constants.filter_map(|attribute| attribute.t.as_mut());
    for (index, weight) in graph.initializer.iter_mut().chain(constants).enumerate() {
        if let Some(words) = weight.doc_string.strip_prefix("normal ") {
            weight.raw_data = drawn(
                weight,
                words,
                block.get(index * 7919 % BLOCK..).unwrap_or_default(),
            )?;
        }
    }
    Ok(Model::from_proto(proto)?)
}

fn drawn(weight: &TensorProto, words: &str, block: &[f32]) -> Result<Bytes> {
    let (mean, spread) = words
        .split_once(' ')
        .context("the doc string must be 'normal MEAN SPREAD'")?;
    let (mean, spread): (f32, f32) = (mean.parse()?, spread.parse()?);
    let count = usize::try_from(weight.dims.iter().product::<i64>())?;
    let values = block.iter().take(count);
    let drawn: Vec<u8> = values
        .flat_map(|value| (mean + spread * value).to_le_bytes())
        .collect();
    let mut raw = Vec::with_capacity(4 * count);
    while let Some(more) = drawn
        .get(..drawn.len().min(4 * count - raw.len()))
        .filter(|more| !more.is_empty())
    {
        raw.extend_from_slice(more);
    }
    Ok(raw.into())
}

/// Normally distributed numbers (mean 0, standard deviation 1), approximated by sums of twelve uniform ones.
/// All calls return the same sequence.
pub(super) fn normal(count: usize) -> Vec<f32> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut even = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1_u64 << 24) as f32
    };
    let mut next = || (0..12).map(|_| even()).sum::<f32>() - 6.0;
    std::iter::repeat_with(&mut next).take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_graph::build::{batched, initializer, model, node};
    use frostline_graph::onnx::GraphProto;
    use frostline_tensor::Tensor;

    #[test]
    fn omitted_weights_are_drawn_by_mean_and_spread() {
        let mut weight = initializer("w", &Tensor::f32([1, 1], vec![0.0]).unwrap());
        weight.dims = vec![200, 500];
        weight.raw_data = Bytes::new();
        weight.doc_string = "normal 3 0.5".to_owned();
        let graph = GraphProto {
            node: vec![node("MatMul", &["x", "w"], &["y"])],
            initializer: vec![weight],
            input: vec![batched("x", &[200])],
            output: vec![batched("y", &[500])],
            ..GraphProto::default()
        };
        let filled = filled(Model::from_proto(model(17, graph)).unwrap()).unwrap();
        let weight = filled.weight("w").unwrap();
        let values = weight.as_f32().unwrap();
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        let spread = values.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / values.len() as f32;
        assert!(
            (mean - 3.0).abs() < 0.02 && (spread.sqrt() - 0.5).abs() < 0.02,
            "{mean} {spread}"
        );
    }
}
