//! The gradient graph of a suffix, losses and optimisers: ONNX in, ONNX out
