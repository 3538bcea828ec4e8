//! Networks that end in probabilities, which are trained on the scores behind them.

use crate::analysis::Analysis;
use crate::head::find;
use crate::replace::{every_name, rename};
use crate::{GraphError, Model, build};

impl Model {
    /// The operator that makes probabilities of the classifier head's scores, `Softmax` or `LogSoftmax`, where there is one.
    /// [`Model::replace_head`] removes it.
    ///
    /// # Errors
    /// Those of the analysis.
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

    /// The network with `operator`, of [`Model::probabilities`], behind its scores `[batch, classes]`. The output keeps its name.
    ///
    /// # Errors
    /// [`GraphError`] for a network of another form.
    pub fn with_probabilities(&self, operator: &str) -> Result<Self, GraphError> {
        let output = self.output_name()?.to_owned();
        let mut graph = self.graph().clone();
        let taken = every_name(&graph);
        let mut names =
            std::iter::successors(Some(format!("{output}/scores")), |name| Some(format!("{name}_")));
        let scores = names.find(|name| !taken.contains(name)).unwrap_or_default();
        rename(&mut graph.node, &output, &scores);
        let made = build::node(operator, &[&scores], &[&output]);
        graph.node.push(
            made.named(&format!("{scores}/{operator}"))
                .with([build::int("axis", 1)]),
        );
        self.with_graph(graph)
    }
}
