//! Rewrites a stage into fewer and faster operators before a session is opened for it.
//!
//! * [`fold_batch_norms`] multiplies the factors of a normalization into the weights of the layer before it.
//! * [`fuse_attention`] replaces attention by a single operator of ONNX Runtime.
//!
//! The results are equal up to rounding. The order is: cut the stage, fold, fuse, and finally change the
//! number format. Fused networks contain an operator outside of ONNX's standard, so they can neither be cut
//! nor be [admitted](frostline_graph::Model::admit): a host fuses a stage after the admission of the network,
//! for its own session only.

mod attention;
mod batch_norms;
mod layout;

pub use attention::fuse_attention;
pub use batch_norms::fold_batch_norms;

#[cfg(test)]
mod tests;
