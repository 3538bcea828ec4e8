use frostline_graph::GraphError;

/// Error of planning.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// No split fits the policy.
    #[error("no split fits the policy '{policy}': {why}")]
    Policy {
        /// The requested policy.
        policy: String,
        /// Similar names and the available splits.
        why: String,
    },
    /// The cut in the policy is ambiguous.
    #[error(transparent)]
    Graph(#[from] GraphError),
}
