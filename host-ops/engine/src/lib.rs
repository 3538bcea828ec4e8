//! ONNX Runtime behind lanes; the one address of ort
