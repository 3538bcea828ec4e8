//! Locates the layers that cause the quantization error.

use crate::QuantizationError;
use crate::layers::{Layers, outputs_of};
use frostline_graph::build::batched;
use frostline_graph::{Cut, Model};

/// Returns the layers of `model` up to the last cut. The outputs are the values at all cuts, `f32[batch,
/// ..cut.shape]`.
///
/// # Errors
/// Returns [`QuantizationError::Graph`] if the network cannot be cut there.
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

/// Returns the output names of the quantizable layers of `model` between two cuts. `from` is `None` for the
/// network's input.
///
/// # Errors
/// Returns [`QuantizationError::Graph`] if the network cannot be cut there and [`QuantizationError::Opset`]
/// if the operators are too old.
pub fn layers_between(model: &Model, from: Option<&str>, to: &str) -> Result<Vec<String>, QuantizationError> {
    let part = model.slice(from, Some(to))?;
    let inside = outputs_of(&part);
    let layers = Layers::up_to(model, to)?;
    let between = layers.quantizable().filter(|(output, _)| inside.contains(output));
    Ok(between.map(|(output, _)| output.to_owned()).collect())
}
