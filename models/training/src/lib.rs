//! The gradient graph of a suffix, losses and optimizers: ONNX in, ONNX out.
//!
//! [`TrainingGraph::build`] takes the layers behind the freeze cut and writes one training step as a plain ONNX model that
//! stock ONNX Runtime executes, on any of its devices: forward pass, [`Loss`], backward pass by reverse-mode differentiation, and the
//! [`Optimizer`]'s update. [`StepSettings`] has all that can be said about it.
//!
//! # State
//! The model itself remembers nothing. Weights, and what the [`Optimizer`] keeps of them, are [`StateSlot`]s: inputs that
//! take the tensors before the step, outputs that give those after it. Slots do not depend on the batch size, so the short
//! last batch of an epoch has a graph of its own over the same state, and its loss is the mean over just its rows.
//! [`StateSlot::to_weight`] turns a slot's tensor back into the weight to merge into the network.
//!
//! Where several batches make one update ([`StepSettings::accumulates`]), a step adds the sum of its samples' gradients to the state, and
//! how much they count; [`TrainingGraph::update`] divides the one by the other and updates. So neither the sizes of batches nor the weights
//! of their classes matter, nor samples that are missing.
//!
//! # What is trained
//! Every weight of the suffix: [`Model::parameters`](frostline_graph::Model::parameters). A tensor stored once and used twice stays one
//! weight and gets the sum of both gradients. [`BatchNorm`] says what becomes of BatchNormalization, whose statistics are slots as well
//! where they move.
//!
//! # Rules
//! A rule (`rules/`) emits an operator's forward pass and leaves a closure that emits its backward pass; the closures run in
//! reverse. Shapes are those of one concrete batch size, so no shape is computed at run time, and what is computed from shapes and
//! small constants is known when the graph is written. A node no gradient flows through needs no rule: masks, indices and what else is
//! computed from constants are copied as they stand. Where a gradient flows, an operator without a rule is refused by name, with the
//! node, its module and the advice to freeze it; [`Trainability`] tells of all cuts at once which can be trained from. Each rule is
//! checked against central differences in f64, and small networks of both of torch's exporters against PyTorch's losses over 50 steps.
//!
//! # Forms
//! Between operators a tensor lies as ONNX says, `[n, c, h, w]`, or in rows, `[n·h·w, c]`; whoever needs the other form
//! converts once. A convolution in rows is one Gather (what every tap sees) and one Gemm; the same gathered matrix times the
//! output's gradient is the weight's gradient, and the mirror image is the input's. Measured on two cores, that Gemm
//! reaches 100-200 GFLOP/s where ORT's Conv reaches 60-95 and ConvTranspose 40-105 (512 channels, 7 x 7). Convolution
//! weights lie as `[m, taps·c]` in their slots, so no step rearranges them, and SGD's momentum joins the weight's gradient
//! as the `C` of its Gemm. A large batch is unrolled in parts of at most 16 MiB, once more in the backward pass. Convolutions in groups are
//! ONNX Runtime's own (`rules/grouped.rs`).
//!
//! That Gemm is near the machine's peak, so what is left is to multiply less: 3 x 3 convolutions of stride 1 take 16 multiplications
//! instead of 36 in Winograd's way (`rules/winograd.rs`), forward and backward, at the price of passes over memory. Where that is faster is a
//! rule, and [`StepSettings::winograd`] names the weights. Those lie as `[taps, m·c]` in their slots.
//!
//! # Memory
//! A step holds each weight and what the optimizer remembers of it once, the activations that the backward pass reads, and the tensors of
//! the layer in work. ONNX Runtime decides when a tensor's memory is free, so the graph is written for it:
//!
//! - It runs what the last written leaf needs first. Updates are written in reverse: a gradient becomes an update as soon as it is made.
//! - [`TrainingGraph::in_place`] names the outputs that may be written over their slots' inputs. Where something reads a weight after its
//!   gradient is made, such as the input's gradient, the update is delayed until that has run.
//! - It gives a tensor the memory of an earlier one of the same shape, and holds that memory in between. So it is kept from knowing shapes of the
//!   forward pass and of convolutions' backward passes (`emitter.rs`). Elsewhere in the backward pass it knows them, and writes results over
//!   operands.
//! - Unrolled inputs, tiles and transformed kernels are several times what they are made of. They are bounded by parts of the batch and made again
//!   in the backward pass.
//! - What is left grows with the batch. [`CpuSteps`] divides a large one into micro-batches, whose gradients make one update.

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
pub use mask::Mask;
pub use memory::StepMemory;
pub use micro_batch::CpuSteps;
pub use mode::{BatchNorm, Dropout};
pub use optimizer::Optimizer;
pub use settings::StepSettings;
pub use state::StateSlot;
pub use trainability::Trainability;
pub use training_graph::TrainingGraph;
pub use update::Scalars;

#[cfg(test)]
mod tests;
