//! Where rounding costs precision.

use crate::QuantisationError;
use crate::layers::Layers;
use frostline_graph::build::batched;
use frostline_graph::onnx::ModelProto;
use frostline_graph::{Cut, Model};
use std::collections::HashSet;

/// The layers of `model` up to the last of `cuts`, with the values at all of them as outputs.
///
/// # Errors
/// [`QuantisationError::Graph`].
pub fn observed(model: &Model, cuts: &[Cut]) -> Result<Model, QuantisationError> {
    let last = cuts.last().map(|cut| cut.name.as_str());
    let proto = model.slice(None, last)?.into_proto();
    let mut graph = proto.graph.clone().unwrap_or_default();
    graph.output = cuts
        .iter()
        .map(|cut| batched(&cut.name, cut.shape.dims()))
        .collect();
    Ok(Model::from_proto(ModelProto {
        graph: Some(graph),
        ..proto
    })?)
}

/// The layers with weights of `model` from one cut, or its input, to another, by the value each makes.
///
/// # Errors
/// [`QuantisationError`].
pub fn layers_between(model: &Model, from: Option<&str>, to: &str) -> Result<Vec<String>, QuantisationError> {
    let part = model.slice(from, Some(to))?;
    let made: HashSet<&str> = part
        .nodes()
        .iter()
        .flat_map(|node| &node.output)
        .map(String::as_str)
        .collect();
    let layers = Layers::up_to(model, to)?;
    let between = layers.kernels().filter(|(output, _)| made.contains(output));
    Ok(between.map(|(output, _)| output.to_owned()).collect())
}
