use crate::ImageError;

/// What a decoder read from an image's headers, and the rest of its work.
pub(crate) struct Claim<'a> {
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// The most bytes that decoding holds at any time, the pixels among them.
    pub(crate) takes: u64,
    /// Decodes to RGB.
    pub(crate) pixels: Box<dyn FnOnce() -> Result<Vec<u8>, ImageError> + 'a>,
}
