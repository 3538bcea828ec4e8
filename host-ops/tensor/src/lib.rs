//! Types that all crates share. They include element types, shapes with checked arithmetic, owned tensors,
//! operation errors, sample references and listings. The traits here separate the parts of the host.
//!
//! This crate does not depend on ONNX Runtime, Wasm or HTTP. Only owned tensors and names cross
//! [`GraphExecutor`], so an implementation may run on another thread, process or device.

mod augmentation;
mod cause;
mod dtype;
mod error;
mod figures;
mod half_precision;
mod names;
mod normalization;
mod pixels;
mod quantize;
mod resampling;
mod samples;
mod seams;
mod secrets;
mod shape;
mod stand_in;
mod tensor;
mod terms;

pub use augmentation::{
    Augmentation, AugmentationError, ColorJitter, RandAugment, RandomErasing, RandomResizedCrop, View,
};
pub use cause::{Cause, one_line};
pub use dtype::DType;
pub use error::{OpError, OpErrorCode};
pub use figures::{format_bytes, format_number};
pub use half_precision::{all_finite, exceeds_f16, from_f16, to_f16};
pub use names::{
    IMAGE_EXTENSIONS, extension, is_cloud_placeholder, is_hidden_name, is_image_name,
    is_unsupported_image_name,
};
pub use normalization::{Normalization, NormalizationTable};
pub use pixels::{PixelFormat, PixelSpec, PixelSpecError};
pub use quantize::{Affine, dequantize, quantize};
pub use resampling::{ChannelOrder, Interpolation, ResizeMode};
pub use samples::{Layout, ObjectInfo, ObjectPage, OutwardLinks, SampleRef, SkippedNames, listing_order};
pub use seams::{BoxFuture, GraphExecutor, LoadedPixels, ObjectReader, SampleFailure, SampleLoader, Stage};
pub use secrets::without_secrets;
pub use shape::{Shape, ShapeError};
pub use stand_in::StandIn;
pub use tensor::{Data, Tensor};
pub use terms::{ExecutionTerms, Precision, Terms, TermsError};
