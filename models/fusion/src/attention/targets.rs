use super::graph::AttentionGraph;
use frostline_graph::build::integers;
use frostline_graph::{GraphError, Model};

/// Returns the network with constant targets of reshapes, except for those with several axes that depend on
/// the batch. Exporters compute targets from shapes, with nodes that a GPU leaves to the CPU, and these read
/// values that the fused operator does not compute.
///
/// # Errors
/// Returns the errors of [`Model::shapes`].
pub(super) fn with_constant_targets(model: &Model) -> Result<Model, GraphError> {
    let network = AttentionGraph::new(model)?;
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
        let Some(sizes) = network.target(output) else {
            continue;
        };
        let varies = sizes.iter().filter(|size| **size == -1).count();
        if constants.contains_key(target) || varies > 1 || sizes.contains(&0) {
            continue;
        }
        let name = format!("{output}/target");
        targets.push(integers(&name, &sizes));
        if let Some(target) = node.input.get_mut(1) {
            *target = name;
        }
    }
    graph.initializer.extend(targets);
    Ok(model.with_graph(graph)?.without_unread())
}
