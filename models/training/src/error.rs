use frostline_graph::GraphError;
use frostline_tensor::ShapeError;

/// Error while building a training graph.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainingError {
    /// An operator after the freeze cut has no gradient rule.
    #[error(
        "cannot train through operator {operator} ({node}): no gradient rule exists; choose a freeze cut after it"
    )]
    NoRule {
        /// Name of the operator in ONNX.
        operator: String,
        /// The node and the module of the node, from
        /// [`NodeProto::place`](frostline_graph::onnx::NodeProto::place).
        node: String,
    },
    /// The operator has a rule, but not for this use.
    #[error("cannot train through operator {operator} ({node}): {reason}; choose a freeze cut after it")]
    Unsupported {
        /// Name of the operator in ONNX.
        operator: String,
        /// The node and the module of the node, from
        /// [`NodeProto::place`](frostline_graph::onnx::NodeProto::place).
        node: String,
        /// Unsupported property of the node.
        reason: String,
    },
    /// The suffix does not support training.
    #[error("cannot train this suffix: {reason}")]
    Suffix {
        /// Cause and next step.
        reason: String,
    },
    /// The shape of a weight is invalid for the operator.
    #[error("cannot train this suffix: weight '{weight}': {source}")]
    Weight {
        /// Name of the initializer.
        weight: String,
        /// Error in the shape.
        source: ShapeError,
    },
    /// A setting of the step is out of range.
    #[error("{setting} is {value}; it must be {expected}")]
    Setting {
        /// Name of the setting.
        setting: &'static str,
        /// Value of the setting.
        value: f64,
        /// Allowed values.
        expected: &'static str,
    },
    /// Type or shape of a state tensor do not match the slot.
    #[error("invalid tensor for state slot '{slot}': expected {expected}, got {actual}")]
    State {
        /// Input name of the slot.
        slot: String,
        /// Type and shape of the slot.
        expected: String,
        /// Type and shape of the tensor.
        actual: String,
    },
    /// The suffix is invalid, for example because of an unknown shape or a broken tensor.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl TrainingError {
    pub(crate) fn suffix(reason: impl Into<String>) -> Self {
        Self::Suffix {
            reason: reason.into(),
        }
    }
}
