//! Random augmentation of training images. A [`Draw`] contains the random choices for a sample and applies
//! them to the image.

mod color;
mod draw;
mod geometry;
mod operation;
mod random;

pub use draw::Draw;
pub use geometry::{Area, Matrix};
pub use operation::Operation;

/// A pixel (red, green, blue).
pub(crate) type Rgb = [u8; 3];

/// An image under augmentation, with rows from the top.
pub(crate) struct Canvas {
    pub(crate) pixels: Vec<Rgb>,
    pub(crate) width: usize,
}
