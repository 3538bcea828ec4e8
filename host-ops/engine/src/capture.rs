//! State of a session's CUDA graph.

use ort::value::DynTensor;

/// Part of ONNX Runtime's error for a network with nodes that run on the CPU.
pub(crate) const REFUSED: &str = "graph capture";

/// Use of a CUDA graph by a session.
#[derive(Debug, Default)]
pub(crate) enum Capture {
    /// The session does not capture graphs.
    #[default]
    Off,
    /// The next batch determines the shapes.
    Ready,
    /// The graph is for batches of this type and shape. Other batches are executed without the graph.
    For(FixedTensors),
    /// An execution failed or was interrupted, possibly during the capture. ONNX Runtime then keeps a graph of
    /// the kernels so far, which must not be replayed. The tensors exist as long as that graph.
    Abandoned { _tensors: FixedTensors },
}

/// Tensors on the device at the addresses of a graph.
#[derive(Debug)]
pub(crate) struct FixedTensors {
    pub(crate) input: DynTensor,
    pub(crate) output: DynTensor,
}

#[cfg(test)]
impl Capture {
    /// Returns the addresses of the graph's input and output.
    pub(crate) fn addresses(&self) -> Option<[usize; 2]> {
        match self {
            Self::For(fixed) => Some([&fixed.input, &fixed.output].map(|tensor| tensor.data_ptr() as usize)),
            _ => None,
        }
    }
}
