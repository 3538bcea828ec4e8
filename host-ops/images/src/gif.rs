use crate::claim::ParsedImage;
use crate::orientation::Orientation;
use crate::rgb::palette_color;
use crate::{DecodeLimits, ImageError, ImageFormat};
use gif::{ColorOutput, DecodeOptions, DecodingError, Frame, MemoryLimit};
use std::num::NonZeroU64;

/// Parses a GIF's headers up to the first frame. As in Pillow, the canvas is enlarged if the frame exceeds
/// the screen, and pixels outside of the frame have the transparent palette index, or 0 if no index is
/// transparent.
pub(crate) fn read<'a>(bytes: &'a [u8], limits: &DecodeLimits) -> Result<ParsedImage<'a>, ImageError> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    let most = NonZeroU64::new(limits.max_pixels).unwrap_or(NonZeroU64::MIN);
    options.set_memory_limit(MemoryLimit::Bytes(most));
    let mut decoder = options.read_info(bytes).map_err(explain)?;
    let screen = (u32::from(decoder.width()), u32::from(decoder.height()));
    let frame = decoder.next_frame_info().map_err(explain)?;
    let frame = frame.ok_or_else(|| malformed("the first frame is missing"))?;
    let width = screen.0.max(u32::from(frame.left) + u32::from(frame.width));
    let height = screen.1.max(u32::from(frame.top) + u32::from(frame.height));
    let size = limits.check(ImageFormat::Gif, width, height)?;
    let placement = Placement::from_frame(frame, width);
    let own = frame.palette.clone();
    Ok(ParsedImage {
        width,
        height,
        orientation: Orientation::default(),
        memory_needed: (size + decoder.buffer_size() + WORK) as u64,
        work: PIXEL_WORK * u64::from(width) * u64::from(height),
        slow_because: String::new(),
        decode: Box::new(move || {
            let mut indices = vec![0; decoder.buffer_size()];
            decoder.read_into_buffer(&mut indices).map_err(explain)?;
            let palette = own.as_deref().or(decoder.global_palette()).unwrap_or_default();
            let palette = palette.as_chunks::<3>().0;
            let mut pixels = palette_color(palette, placement.outside).repeat(size / 3);
            placement.paint(&indices, palette, &mut pixels);
            Ok(pixels)
        }),
    })
}

/// Cost of decoding a pixel, relative to a pixel of a JPEG.
const PIXEL_WORK: u64 = 4;

/// Upper bound for the bytes of the decompressor's tables and a palette.
const WORK: usize = 256 << 10;

/// Position of a frame on the canvas. Horizontal values count bytes of RGB, vertical values rows.
struct Placement {
    left: usize,
    top: usize,
    width: usize,
    canvas: usize,
    /// Palette index for pixels outside of the frame.
    outside: u8,
}

impl Placement {
    fn from_frame(frame: &Frame<'_>, canvas: u32) -> Self {
        Self {
            left: usize::from(frame.left) * 3,
            top: usize::from(frame.top),
            width: usize::from(frame.width),
            canvas: canvas as usize * 3,
            outside: frame.transparent.unwrap_or_default(),
        }
    }

    fn paint(&self, indices: &[u8], palette: &[[u8; 3]], pixels: &mut [u8]) {
        let rows = pixels.chunks_exact_mut(self.canvas.max(1)).skip(self.top);
        for (row, indices) in rows.zip(indices.chunks_exact(self.width.max(1))) {
            let row = row.get_mut(self.left..).unwrap_or_default();
            for (pixel, &index) in row.as_chunks_mut::<3>().0.iter_mut().zip(indices) {
                *pixel = palette_color(palette, index);
            }
        }
    }
}

fn explain(error: DecodingError) -> ImageError {
    match error {
        DecodingError::UnexpectedEof => {
            ImageError::truncated(ImageFormat::Gif, "the data ends inside the first frame")
        }
        other => malformed(&other.to_string()),
    }
}

fn malformed(reason: &str) -> ImageError {
    ImageError::malformed(ImageFormat::Gif, reason)
}
