//! ONNX as a graph: read a network, find the cuts of its DAG, split it into prefix, middle and suffix, replace its
//! classifier head, and merge trained weights back.

pub mod onnx;
