//! ONNX as a graph: read a network, find the cuts of its DAG, split it into prefix, middle and suffix, replace its
//! classifier head, and merge trained weights back.

pub mod build;
pub mod onnx;
pub mod tensors;

mod attributes;
mod contract;
mod error;
mod form;
mod infer;
mod model;
mod read;
mod shapes;

pub use error::GraphError;
pub use model::Model;
pub use shapes::{Shapes, ValueShape};
