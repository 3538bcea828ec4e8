//! Training images, varied at random: [`Draw`] is what chance said for one sample, and what it makes of the image.

mod color;
mod draw;
mod geometry;
mod operation;
mod random;

pub use draw::Draw;
pub use geometry::Area;
pub use operation::Operation;

/// A pixel: red, green, blue.
pub(crate) type Rgb = [u8; 3];

/// An image of these sides, rows from the top.
pub(crate) struct Canvas {
    pub(crate) pixels: Vec<Rgb>,
    pub(crate) width: usize,
}
