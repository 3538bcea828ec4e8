//! Networks that output probabilities. They are trained on the scores from which the probabilities are
//! computed.

use crate::analysis::Analysis;
use crate::head::find;
use crate::replace::{every_name, free, rename};
use crate::{GraphError, Model, build};

impl Model {
    /// Returns the operator that computes probabilities from the scores of the classifier head, `Softmax` or
    /// `LogSoftmax`, if the network has one. [`Model::replace_head`] removes it.
    ///
    /// # Errors
    /// Returns [`GraphError::Shape`] if the inputs of a node do not fit its operator, and
    /// [`GraphError::Outputs`] if the model has no output.
    pub fn probabilities(&self) -> Result<Option<String>, GraphError> {
        let analysis = Analysis::run(self)?;
        let found = find(&analysis, self.output_name()?);
        let mut tail = found
            .iter()
            .flat_map(|found| &found.tail)
            .filter_map(|index| self.nodes().get(*index));
        let operator = tail.find(|node| matches!(node.standard_operator(), Some("Softmax" | "LogSoftmax")));
        Ok(operator.map(|node| node.op_type.clone()))
    }

    /// Appends `operator`, as returned by [`Model::probabilities`], to a network that outputs scores `[batch,
    /// classes]`. The name of the output does not change.
    ///
    /// # Errors
    /// Returns [`GraphError::Outputs`] if the model has no output, and [`GraphError::Malformed`] if no node
    /// produces it.
    pub fn with_probabilities(&self, operator: &str) -> Result<Self, GraphError> {
        let output = self.output_name()?.to_owned();
        let mut graph = self.graph().clone();
        let taken = every_name(&graph);
        let scores = free(&format!("{output}/scores"), &taken);
        rename(&mut graph.node, &output, &scores);
        let made = build::node(operator, &[&scores], &[&output]);
        graph.node.push(
            made.named(&format!("{scores}/{operator}"))
                .with([build::int("axis", 1)]),
        );
        self.with_graph(graph)
    }
}
