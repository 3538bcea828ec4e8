//! Photos to pixels: decode, resize, crop, augment and normalize into a batch tensor, as torchvision does on Pillow images.
//!
//! * [`decode`]: a JPEG, PNG, WebP, GIF or BMP to 8-bit RGB, as Pillow's `exif_transpose(open(..)).convert("RGB")` gives it.
//! * [`Undecoded`]: an image whose headers are read, and the most memory that decoding it takes.
//! * [`load`]: an object's bytes to the crop a [`PixelSpec`](frostline_tensor::PixelSpec) describes, `u8[3, h, w]`.
//! * [`load_augmented`]: the same, varied at random as a [`View`](frostline_tensor::View) has it for a sample; [`Draw`] is what chance said.
//! * [`normalize`]: such crops to network input; the same values as loading to `f32` at once.
//! * [`is_image_name`]: which objects are taken for images before they are read.
//! * [`DecodePool`]: a bounded number of decoding threads that everything in a process shares.
//! * [`BatchLoader`]: reads ([`ByteSource`]) and decodes overlapped into one batch tensor; a broken sample is listed, it
//!   never fails the batch. Bytes come with what keeps them reserved ([`Held`]), and a large image asks for its memory
//!   ([`DecodeRoom`]) before it is decoded.
//!
//! Whatever the bytes are, nothing here panics, and what an image may claim is bounded by [`DecodeLimits`].

mod augment;
mod batch;
mod bmp;
mod claim;
mod decode;
mod error;
mod format;
mod gif;
mod jpeg;
mod jpeg_header;
mod limits;
mod loader;
mod names;
mod normalize;
mod orientation;
mod placement;
mod png;
mod pool;
mod resize;
mod rgb;
mod room;
mod webp;
mod webp_lossless;

pub use augment::{Area, Draw, Operation};
pub use decode::{Undecoded, decode};
pub use error::{ImageError, ImageFormat};
pub use limits::{BatchLimits, DecodeLimits};
pub use loader::{BatchLoader, ByteSource, LoaderOptions};
pub use names::{EXTENSIONS, extension, is_image_name, is_unsupported_image_name};
pub use normalize::normalize;
pub use pool::DecodePool;
pub use resize::{load, load_augmented, resize_and_crop};
pub use rgb::RgbImage;
pub use room::{DecodeRoom, Guard, Held};
