use frostline_graph::GraphError;

/// Error while quantizing a network.
#[derive(Debug, thiserror::Error)]
pub enum QuantizationError {
    /// The network is invalid or cannot be cut.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The operators are older than version 13, the first one with a scale per channel.
    #[error(
        "int8 requires ONNX opset 13 or later, but the network has opset {found}; export it with opset 17 or later"
    )]
    Opset {
        /// Operator set version of the network.
        found: i64,
    },
    /// No layer can be quantized.
    #[error(
        "the frozen layers contain no convolution or linear layer with stored f32 weights, so int8 gains nothing; use f32"
    )]
    NoQuantizableLayer,
    /// The range of a value on the calibration images is not finite, or a weight or bias contains NaN or
    /// infinity.
    #[error("the frozen layers compute NaN or infinity at `{tensor}` on the calibration images; use f32")]
    NotFinite {
        /// Name of the value or weight. If a bias is not finite, the name of the layer's weight.
        tensor: String,
    },
    /// A value to quantize has no calibration range, usually because the ranges belong to a different
    /// network.
    #[error(
        "missing calibration range for `{tensor}`: the ranges were measured on another network; calibrate this network"
    )]
    NoRange {
        /// Name of the value.
        tensor: String,
    },
}
