use super::graph::BATCHES;
use frostline_graph::build::integers;
use frostline_graph::{GraphError, Model};

/// Returns the network with constant targets of reshapes, except for those with several axes that depend on
/// the batch. Exporters compute targets from shapes, with nodes that a GPU leaves to the CPU, and these read
/// values that the fused operator does not compute.
///
/// # Errors
/// Returns the errors of [`Model::shapes`].
pub(super) fn with_constant_targets(model: &Model) -> Result<Model, GraphError> {
    let [shapes, others] = BATCHES.map(|batch| model.shapes(batch));
    let shapes = shapes?;
    let others = others?;
    let constants = model.constants();
    let mut graph = model.graph().clone();
    let mut targets = Vec::new();
    for node in &mut graph.node {
        if node.standard_operator() != Some("Reshape") {
            continue;
        }
        let (Some(output), Some(target)) = (node.output_name(0), node.input_name(1)) else {
            continue;
        };
        let Some((dims, others)) = shapes.dims(output).zip(others.dims(output)) else {
            continue;
        };
        let varies = dims
            .iter()
            .zip(others)
            .filter(|(size, other)| size != other)
            .count();
        if constants.contains_key(target) || varies > 1 || dims.contains(&0) {
            continue;
        }
        let sizes = dims.iter().zip(others).map(|(size, other)| match size == other {
            true => i64::try_from(*size).unwrap_or(i64::MAX),
            false => -1,
        });
        let name = format!("{output}/target");
        targets.push(integers(&name, &sizes.collect::<Vec<_>>()));
        if let Some(target) = node.input.get_mut(1) {
            *target = name;
        }
    }
    graph.initializer.extend(targets);
    Ok(model.with_graph(graph)?.without_unread())
}
