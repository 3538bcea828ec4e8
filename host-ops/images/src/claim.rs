use crate::ImageError;
use crate::orientation::Orientation;

/// Parsed image headers with a closure to decode the pixels.
pub(crate) struct ParsedImage<'a> {
    /// Width and height of the stored pixels, before applying the orientation.
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Orientation from the metadata.
    pub(crate) orientation: Orientation,
    /// Maximum bytes allocated while decoding, including the pixels.
    pub(crate) memory_needed: u64,
    /// Decodes to RGB without applying the orientation.
    pub(crate) decode: Box<dyn FnOnce() -> Result<Vec<u8>, ImageError> + 'a>,
}
