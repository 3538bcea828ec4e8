//! The gradient graph of a suffix, losses and optimisers: ONNX in, ONNX out.
//!
//! [`TrainingGraph::build`] takes the layers behind the freeze cut and writes one training step as a plain ONNX model that
//! stock ONNX Runtime executes, on any of its devices.

mod call;
mod emitter;
mod error;
mod loss;
mod optimizer;
mod parameters;
mod rules;
mod source;
mod state;
mod tape;
mod training_graph;
mod windows;

pub use error::TrainingError;
pub use optimizer::Optimizer;
pub use state::StateSlot;
pub use training_graph::TrainingGraph;

#[cfg(test)]
mod tests;
