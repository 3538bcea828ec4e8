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
    /// Work of decoding in pixels of a baseline JPEG, which need 2 ns each.
    pub(crate) work: u64,
    /// Continues the size in the error about too much work, such as ` with 100 scans`.
    pub(crate) slow_because: String,
    /// Decodes to RGB without applying the orientation.
    pub(crate) decode: Box<dyn FnOnce() -> Result<Vec<u8>, ImageError> + 'a>,
}
