use crate::ImageError;
use crate::orientation::Orientation;

/// What a decoder read from an image's headers, and the rest of its work.
pub(crate) struct Claim<'a> {
    /// Of the pixels as they are stored.
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Which way up they are seen.
    pub(crate) orientation: Orientation,
    /// The most bytes that decoding holds at any time, the pixels among them.
    pub(crate) takes: u64,
    /// Decodes to RGB, as it is stored.
    pub(crate) pixels: Box<dyn FnOnce() -> Result<Vec<u8>, ImageError> + 'a>,
}
