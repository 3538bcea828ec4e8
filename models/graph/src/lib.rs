//! ONNX models as graphs. This crate reads a network, finds the cuts of its DAG, slices it into prefix,
//! middle and suffix, replaces its classifier head and merges trained weights back. It also checks models
//! from untrusted sources before any other component reads them.

mod backbone;
pub mod build;
pub mod equation;
pub mod onnx;
mod tensor_info;
pub mod tensors;

mod admission;
mod analysis;
mod attributes;
mod changes;
mod channel_map;
mod contract;
mod cost;
mod cut;
mod division;
mod error;
mod external;
mod form;
mod functions;
mod head;
mod infer;
mod initialize;
mod joint;
mod joint_inputs;
mod joint_names;
mod joint_tensors;
mod kinds;
mod links;
mod merge;
mod model;
mod modules;
mod network;
mod normalization;
mod operators;
mod own_weights;
mod parameters;
mod positions;
mod probabilities;
mod read;
mod rebatch;
mod repeat;
mod replace;
mod reshaping;
mod rotary;
mod rows;
mod separator;
mod shapes;
mod similar;
mod slice;
mod splits;
mod sweep;
mod values;
mod write;

pub use admission::{Footprint, Inadmissible, MemoryBound, ModelLimits, RefusedCut};
pub use changes::GraphChanges;
pub use channel_map::ChannelMap;
pub use contract::Interface;
pub use cut::Cut;
pub use error::{GraphError, InputSize};
pub use form::{drop_unread, drop_unread_inputs, read_names};
pub use head::Head;
pub use joint_inputs::JointInput;
pub use links::Links;
pub use model::Model;
pub use network::Network;
pub use normalization::InputNormalization;
pub use operators::Effort;
pub use shapes::{Shapes, ValueShape};
pub use similar::{list_first, similar};
pub use tensor_info::TensorInfo;
pub use values::from_end;
pub use write::{EncodedModel, ONE_FILE, Staged};

#[cfg(test)]
mod tests;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
