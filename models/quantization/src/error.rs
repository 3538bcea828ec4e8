use frostline_graph::GraphError;

/// A network that cannot be computed in int8.
#[derive(Debug, thiserror::Error)]
pub enum QuantizationError {
    /// The network itself.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// Scales for each channel came with version 13.
    #[error(
        "int8 requires version 13 of ONNX's operators, the network has {found}; export it with opset 17 or later"
    )]
    Opset {
        /// The network's version.
        found: i64,
    },
    /// No layer can be quantized.
    #[error(
        "the frozen layers contain no convolution or linear layer with stored f32 weights, so int8 gains nothing; use f32"
    )]
    Nothing,
    /// NaN and infinity have no range.
    #[error("the frozen layers compute NaN or infinity at `{tensor}` on the calibration images; use f32")]
    NotFinite {
        /// The value's name.
        tensor: String,
    },
    /// The ranges are of another network.
    #[error("the calibration has no range for `{tensor}`; it belongs to another network")]
    NoRange {
        /// The value's name.
        tensor: String,
    },
}
