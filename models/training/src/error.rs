use frostline_graph::GraphError;
use frostline_tensor::ShapeError;

/// Why a suffix cannot be trained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainingError {
    /// An operator without a gradient rule lies between the freeze cut and the output.
    #[error(
        "cannot train through operator {operator} ({node}): it has no gradient rule; choose a freeze cut after it, so that it stays frozen"
    )]
    NoRule {
        /// The operator, as ONNX spells it.
        operator: String,
        /// The node, and the module it lies in: [`NodeProto::place`](frostline_graph::onnx::NodeProto::place).
        node: String,
    },
    /// The operator has a rule, but not for the way it is used here.
    #[error(
        "cannot train through operator {operator} ({node}): {reason}; choose a freeze cut after it, so that it stays frozen"
    )]
    Unsupported {
        /// The operator, as ONNX spells it.
        operator: String,
        /// The node, and the module it lies in: [`NodeProto::place`](frostline_graph::onnx::NodeProto::place).
        node: String,
        /// What about this node has no rule.
        reason: String,
    },
    /// The suffix as a whole is not something to train.
    #[error("cannot train this suffix: {reason}")]
    Suffix {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A weight whose shape its operator does not take.
    #[error("cannot train this suffix: weight '{weight}': {source}")]
    Weight {
        /// The initializer's name.
        weight: String,
        /// What is wrong with its shape.
        source: ShapeError,
    },
    /// A setting of the step outside its range.
    #[error("{setting} is {value}, it must be {expected}")]
    Setting {
        /// Which setting.
        setting: &'static str,
        /// Its value.
        value: f64,
        /// The values it may have.
        expected: &'static str,
    },
    /// A state tensor that is not of the slot's shape and type.
    #[error("state slot '{slot}' takes {expected}, not {actual}")]
    State {
        /// The slot's input name.
        slot: String,
        /// Type and shape the slot has.
        expected: String,
        /// Type and shape that came.
        actual: String,
    },
    /// The suffix itself cannot be read: an unknown shape, a broken tensor.
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
