//! Which layers cause the quantization error.

use crate::QuantizationError;
use crate::layers::{Layers, outputs_of};
use frostline_graph::build::batched;
use frostline_graph::{Cut, Model};

/// The layers of `model` up to the last of `cuts`, with the values at all of them as outputs, each `[batch, ..cut.shape]` in `f32`.
///
/// # Errors
/// [`QuantizationError::Graph`].
pub fn with_cuts_as_outputs(model: &Model, cuts: &[Cut]) -> Result<Model, QuantizationError> {
    let last = cuts.last().map(|cut| cut.name.as_str());
    let part = model.slice(None, last)?;
    let mut graph = part.graph().clone();
    graph.output = cuts
        .iter()
        .map(|cut| batched(&cut.name, cut.shape.dims()))
        .collect();
    Ok(part.with_graph(graph)?)
}

/// The quantizable layers of `model` between two cuts (`None`: its input), each named by its output.
///
/// # Errors
/// [`QuantizationError`].
pub fn layers_between(model: &Model, from: Option<&str>, to: &str) -> Result<Vec<String>, QuantizationError> {
    let part = model.slice(from, Some(to))?;
    let inside = outputs_of(&part);
    let layers = Layers::up_to(model, to)?;
    let between = layers.quantizable().filter(|(output, _)| inside.contains(output));
    Ok(between.map(|(output, _)| output.to_owned()).collect())
}
