//! Builds training graphs: the gradient graph of a suffix with a loss and an optimizer, from ONNX to ONNX.
//!
//! [`TrainingGraph::build`] turns the layers after the freeze cut into a training step. The step is a plain
//! ONNX model that stock ONNX Runtime executes on any device. It contains the forward pass, the [`Loss`], the
//! backward pass by reverse-mode differentiation, and the update of the [`Optimizer`]. [`StepSettings`]
//! contains all options.
//!
//! # State
//! The model is stateless. Weights and the optimizer's state are [`StateSlot`]s: graph inputs for the tensors
//! before the step, and graph outputs for the tensors after it. Slots do not depend on the batch size, so the
//! short last batch of an epoch has a separate graph over the same state. The loss is the mean over the rows
//! of the batch. [`StateSlot::to_weight`] converts the tensor of a slot to the weight to merge into the
//! network.
//!
//! An update can combine multiple batches ([`StepSettings::accumulates`]). In this case a step adds the sum
//! of the gradients of the samples to the state, and the sum of the sample weights. [`TrainingGraph::update`]
//! divides the gradients by the weights and updates. The result does not depend on the sizes of the batches,
//! the class weights in the batches or missing samples.
//!
//! # Trained weights
//! All weights of the suffix are trained
//! ([`Model::parameters`](frostline_graph::Model::parameters)). If two nodes read the same stored tensor, the
//! gradients are added. If the network computes a weight from others (weight norm, standardized convolutions,
//! low-rank adapters), the step differentiates through the computation.
//! [`Model::with_own_weights`](frostline_graph::Model::with_own_weights) prepares networks whose weights are
//! shared by accident or stored as integers. [`BatchNorm`] selects the treatment of BatchNormalization.
//! Moving statistics are also slots.
//!
//! # Types
//! A step computes in `f32`, and in `f64` if the input of the suffix has this type. Values and
//! weights in other floating-point types are converted, so that a cast between floating-point types is the
//! identity. [`Model::merge`](frostline_graph::Model::merge) converts trained weights to the types of the
//! network. Quantization is computed as in the network, and its gradient is that of the identity where the
//! range does not clip (straight-through estimator). Operators that compute with quantized values are
//! refused.
//!
//! # Rules
//! A rule (`rules/`) emits the forward pass of an operator and records a closure that emits the backward
//! pass. The closures run in reverse order. Shapes are computed for a concrete batch size, so the graph
//! contains no shape computations, and values derived from shapes and small constants are known when the
//! graph is written. Rules are only required for nodes with a gradient. Masks, indices and other values
//! computed from constants are copied. An operator that needs a gradient and has no rule is refused with the
//! node, the module and the advice to freeze it. [`Trainability`] checks all cuts of a network in a single
//! pass. Tests compare every rule with central differences, and small networks from both PyTorch exporters
//! with the losses of PyTorch over 50 steps.
//!
//! # Forms
//! Tensors are stored either as defined by ONNX, `[n, c, h, w]`, or in rows, `[n·h·w, c]`. The conversion to
//! the other form happens only once per tensor. A convolution in rows is a Gather, which collects the inputs
//! of all taps, and a Gemm. The same gathered matrix times the gradient of the output is the gradient of the
//! weight, and the gradient of the input is computed in the opposite direction. On two cores, this Gemm
//! reaches 100-200 GFLOP/s, compared to 60-95 for Conv in ONNX Runtime and 40-105 for ConvTranspose (512
//! channels, 7 x 7). Slots store convolution weights as `[m, taps·c]`, so no step rearranges them, and the
//! momentum of SGD is added to the gradient as the `C` of the Gemm. Large batches are unrolled in parts of up
//! to 16 MiB, and again in the backward pass. Grouped convolutions use the operators of ONNX Runtime
//! (`rules/grouped.rs`), except for depthwise ones (`rules/depthwise.rs`).
//!
//! Since this Gemm is close to the peak of the machine, only fewer multiplications can be faster. Winograd's
//! algorithm (`rules/winograd.rs`) needs 16 instead of 36 multiplications for 3 x 3 convolutions with stride
//! 1, forward and backward, at the price of additional passes over memory. A fixed rule selects the
//! convolutions, and [`StepSettings::winograd`] contains the names of the weights. Slots store these weights
//! as `[taps, m·c]`.
//!
//! # Memory
//! The memory of a step contains a single copy of weights and optimizer state, the activations for the
//! backward pass, and the tensors of the current layer. ONNX Runtime decides when the memory of a tensor is
//! free, so the graph is written accordingly:
//!
//! - ONNX Runtime first executes the inputs of the last leaf. Updates are written in reverse order, so a
//!   gradient becomes an update as soon as it is computed.
//! - [`TrainingGraph::in_place`] names the outputs that may be written over the inputs of the same slot. If a
//!   node reads a weight after the weight's gradient is computed, for example for the gradient of the input,
//!   the update is delayed until this node has run.
//! - ONNX Runtime reserves the memory of a dead tensor for a later tensor of the same shape. Therefore the
//!   shapes of the forward pass and of convolutions in the backward pass are hidden (`emitter.rs`). All other
//!   shapes of the backward pass are visible, so that operators can write results over operands.
//! - Unrolled inputs, tiles and transformed kernels are several times larger than the original tensors.
//!   Processing the batch in parts bounds the memory, and the backward pass repeats the computation.
//! - The remaining memory grows with the batch. [`CpuSteps`] divides a large batch into micro-batches that
//!   make a single update.

mod axis;
mod blocks;
mod call;
mod early;
mod emitter;
mod error;
mod loss;
mod mask;
mod memory;
mod micro_batch;
mod mode;
mod operands;
mod optimizer;
mod parameter;
mod range;
mod readers;
mod rules;
mod settings;
mod source;
mod state;
mod tape;
mod tiles;
mod trainability;
mod training_graph;
mod update;
mod windows;
mod winograd;

pub use error::TrainingError;
pub use loss::Loss;
pub use mask::DropoutMask;
pub use memory::StepMemory;
pub use micro_batch::CpuSteps;
pub use mode::{BatchNorm, Dropout};
pub use settings::{Optimizer, StepSettings};
pub use state::StateSlot;
pub use trainability::Trainability;
pub use training_graph::TrainingGraph;
pub use update::Scalars;

#[cfg(test)]
mod tests;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
