//! The words every crate shares: element types, shapes with checked arithmetic, owned tensors, the errors an
//! operation can end with, and the narrow traits that keep the parts of a host apart.
//!
//! This crate knows neither ONNX Runtime nor Wasm nor HTTP. Nothing but owned tensors and names crosses
//! [`GraphExecutor`], so what stands behind it may move to another thread, process or device.

mod dtype;
mod error;
mod pixels;
mod seams;
mod shape;
mod tensor;

pub use dtype::DType;
pub use error::{OpError, OpErrorCode};
pub use pixels::{PixelFormat, PixelSpec, PixelSpecError};
pub use seams::{
    BoxFuture, GraphExecutor, LoadedPixels, ObjectReader, SampleFailure, SampleLoader, SampleRef, Stage,
};
pub use shape::{Shape, ShapeError};
pub use tensor::{Data, Tensor};
