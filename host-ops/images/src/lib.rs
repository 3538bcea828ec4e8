//! Converts photos to pixels: decodes, resizes, crops, augments and normalizes them into a batch tensor, as
//! torchvision does with Pillow images.
//!
//! * [`decode()`] decodes a JPEG, PNG, WebP, GIF or BMP to 8-bit RGB, with the result of Pillow's
//!   `exif_transpose(open(..)).convert("RGB")`.
//! * [`Undecoded`] is an image after parsing its headers. It provides an upper bound of the memory needed for
//!   decoding.
//! * [`load`] converts an object to the crop that a [`PixelSpec`](frostline_tensor::PixelSpec) describes, as
//!   `u8[3, h, w]`.
//! * [`load_augmented`] also applies a [`View`](frostline_tensor::View). [`Draw`] contains the random choices
//!   for a sample.
//! * [`position_in_image`] maps positions in the result to positions in the image, for masks and boxes.
//! * [`normalize()`] converts crops to network input. The values are identical to loading as `f32`.
//! * [`DecodePool`] provides a bounded number of decoding threads for the process.
//! * [`BatchLoader`] reads from a [`ByteSource`] and decodes concurrently into a batch tensor. Broken samples
//!   are reported and do not fail the batch. Bytes carry their memory reservation ([`ReservedBytes`]), and large
//!   images reserve memory ([`DecodeRoom`]) before decoding.
//!
//! Arbitrary input never causes a panic, and [`DecodeLimits`] bounds the size that an image can declare.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests start threads"))]

mod augment;
mod batch;
mod bmp;
mod byte_order;
mod claim;
mod decode;
mod encoded;
mod error;
mod format;
mod gif;
mod jpeg;
mod jpeg_header;
mod limits;
mod loader;
mod loader_options;
mod normalize;
mod orientation;
mod placement;
mod png;
mod pool;
mod preprocess;
mod resize;
mod rgb;
mod room;
mod webp;
mod webp_lossless;

pub use augment::{Area, Draw, Matrix, Operation};
pub use decode::{Undecoded, decode};
pub use error::{ImageError, ImageFormat};
pub use limits::{BatchLimits, DecodeLimits};
pub use loader::{BatchLoader, ByteSource};
pub use loader_options::LoaderOptions;
pub use normalize::normalize;
pub use pool::DecodePool;
pub use preprocess::{load, load_augmented, memory_needed, position_in_image};
pub use resize::resize_and_crop;
pub use rgb::RgbImage;
pub use room::{DecodeRoom, Guard, ReservedBytes};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
