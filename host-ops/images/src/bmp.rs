use crate::claim::ParsedImage;
use crate::orientation::Orientation;
use crate::{DecodeLimits, ImageError, ImageFormat};

/// Parses a BMP's headers. The result of decoding is equal to Pillow's. Supported are palettes with 1, 4 and
/// 8 bits, run-length encoding with 4 and 8 bits, and colors with 16, 24 and 32 bits. Color masks must have
/// contiguous bits at any position. Alpha is dropped.
///
/// This decoder exists because other libraries depend on color management or decode missing data as black.
pub(crate) fn read<'a>(bytes: &'a [u8], limits: &DecodeLimits) -> Result<ParsedImage<'a>, ImageError> {
    let header = Header::read(bytes)?;
    let width = header.width;
    let height = header.height;
    let size = limits.check(ImageFormat::Bmp, width, height)?;
    let coding = Coding::new(&header, bytes)?;
    Ok(ParsedImage {
        width,
        height,
        orientation: Orientation::default(),
        memory_needed: (size + WORK) as u64,
        work: PIXEL_WORK * u64::from(width) * u64::from(height),
        slow_because: String::new(),
        decode: Box::new(move || {
            let data = bytes.get(header.data..).unwrap_or_default();
            let mut canvas = Canvas {
                pixels: vec![0; size],
                width: width as usize,
                height: height as usize,
                top_down: header.top_down,
            };
            match &coding {
                Coding::Runs(palette) => runs(data, palette, header.bits == 4, &mut canvas)?,
                Coding::Indices(palette) => {
                    let color = |row: &[u8], x| palette_color(palette, index(row, header.bits, x));
                    rows(data, header.bits, &mut canvas, color)?;
                }
                Coding::Masks(masks) => {
                    let wide = usize::from(header.bits / 8);
                    let color = |row: &[u8], x| masks.map(|mask| mask.level(word(row, x * wide, wide)));
                    rows(data, header.bits, &mut canvas, color)?;
                }
            }
            Ok(canvas.pixels)
        }),
    })
}

/// Work of a pixel, in pixels of a JPEG.
const PIXEL_WORK: u64 = 5;

/// Upper bound for the bytes of a palette.
const WORK: usize = 4 << 10;

/// Parsed BMP headers.
struct Header {
    width: u32,
    height: u32,
    top_down: bool,
    bits: u16,
    compression: u32,
    /// Number of palette colors.
    colors: usize,
    /// Bytes per palette color.
    color_bytes: usize,
    /// Offset of the masks or palette.
    end: usize,
    /// Offset of the pixels. A palette that the file's offset does not account for is included.
    data: usize,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self, ImageError> {
        let size = long(bytes, 14)?;
        let data = long(bytes, 10)?;
        let end = 14 + size as usize;
        let mut header = match size {
            12 => Self {
                width: short(bytes, 18)?.into(),
                height: short(bytes, 20)?.into(),
                top_down: false,
                bits: short(bytes, 24)?,
                compression: 0,
                colors: 0,
                color_bytes: 3,
                end,
                data: data as usize,
            },
            40 | 52 | 56 | 64 | 108 | 124 => {
                let height = long(bytes, 22)?.cast_signed();
                Self {
                    width: long(bytes, 18)?,
                    height: height.unsigned_abs(),
                    top_down: height < 0,
                    bits: short(bytes, 28)?,
                    compression: long(bytes, 30)?,
                    colors: long(bytes, 46)? as usize,
                    color_bytes: 4,
                    end,
                    data: data as usize,
                }
            }
            _ => return Err(unsupported(format!("header of {size} bytes"))),
        };
        let most = if header.bits <= 8 { 1 << header.bits } else { 0 };
        if header.colors == 0 {
            header.colors = most;
        }
        header.colors = header.colors.min(most);
        let palette = header.color_bytes * header.colors;
        // A header of 40 bytes is followed by masks instead of containing them.
        let masks = if size == 40 && header.compression == 3 {
            12
        } else {
            0
        };
        match header.data {
            // Some writers omit the offset, or do not include the palette.
            0 => header.data = end + masks + palette,
            offset if offset == end => header.data += palette,
            offset if offset < end => {
                let reason = format!("the pixels start at byte {offset}, inside the header");
                return Err(ImageError::malformed(ImageFormat::Bmp, reason));
            }
            _ => {}
        }
        Ok(header)
    }
}

/// Encoding of the pixels.
enum Coding {
    Indices(Vec<[u8; 3]>),
    Runs(Vec<[u8; 3]>),
    Masks([Mask; 3]),
}

impl Coding {
    fn new(header: &Header, bytes: &[u8]) -> Result<Self, ImageError> {
        const BYTES: [u32; 3] = [0x00ff_0000, 0xff00, 0xff];
        const FIVE_BITS: [u32; 3] = [0x7c00, 0x03e0, 0x1f];
        let masks = |masks: [u32; 3]| {
            let [red, green, blue] = masks.map(Mask::new);
            let masks = red
                .zip(green)
                .zip(blue)
                .map(|((red, green), blue)| [red, green, blue]);
            let masks = masks.ok_or_else(|| unsupported("zero or non-contiguous color masks".to_owned()));
            masks.map(Self::Masks)
        };
        match (header.compression, header.bits) {
            (0, 1 | 4 | 8) => Ok(Self::Indices(palette(header, bytes)?)),
            (1, 8) | (2, 4) => Ok(Self::Runs(palette(header, bytes)?)),
            (0, 16) => masks(FIVE_BITS),
            (0, 24 | 32) => masks(BYTES),
            // The masks follow a header with 40 bytes and are part of longer headers, at the same offset.
            (3, 16 | 24 | 32) => match [54, 58, 62].map(|place| long(bytes, place)) {
                [Ok(0), Ok(0), Ok(0)] if header.bits == 32 => masks(BYTES),
                [red, green, blue] => masks([red?, green?, blue?]),
            },
            (compression, bits) => Err(unsupported(format!(
                "{bits} bits per pixel with compression {compression}"
            ))),
        }
    }
}

/// Position of a channel's bits in a pixel.
#[derive(Clone, Copy)]
struct Mask {
    bits: u32,
    shift: u32,
}

impl Mask {
    /// Returns `None` if the mask is zero or its bits are not contiguous.
    fn new(mask: u32) -> Option<Self> {
        let bits = mask.checked_shr(mask.trailing_zeros())?;
        let together = bits.checked_add(1).is_none_or(u32::is_power_of_two);
        together.then_some(Self {
            bits,
            shift: mask.trailing_zeros(),
        })
    }

    /// Scales the channel to 0..255 and rounds down, as in Pillow.
    fn level(self, pixel: u32) -> u8 {
        let value = u64::from((pixel >> self.shift) & self.bits) * 255 / u64::from(self.bits.max(1));
        u8::try_from(value).unwrap_or(u8::MAX)
    }
}

fn palette(header: &Header, bytes: &[u8]) -> Result<Vec<[u8; 3]>, ImageError> {
    let size = header.colors * header.color_bytes;
    let colors = bytes.get(header.end..header.end + size).ok_or_else(truncated)?;
    let colors = colors.chunks_exact(header.color_bytes);
    Ok(colors
        .map(|color| match color {
            [blue, green, red, ..] => [*red, *green, *blue],
            _ => [0; 3],
        })
        .collect())
}

/// Returns a palette color. Undefined colors are black.
fn palette_color(palette: &[[u8; 3]], index: u8) -> [u8; 3] {
    palette.get(usize::from(index)).copied().unwrap_or_default()
}

/// RGB pixels with row access in stored order.
struct Canvas {
    pixels: Vec<u8>,
    width: usize,
    height: usize,
    top_down: bool,
}

impl Canvas {
    fn row(&mut self, stored: usize) -> &mut [[u8; 3]] {
        let row = if self.top_down {
            Some(stored)
        } else {
            self.height.checked_sub(stored + 1)
        };
        let start = row.map_or(usize::MAX, |row| row * self.width);
        let pixels = self.pixels.as_chunks_mut::<3>().0.get_mut(start..);
        pixels
            .and_then(|pixels| pixels.get_mut(..self.width))
            .unwrap_or_default()
    }
}

/// Decodes rows of pixels. Rows are padded to a multiple of four bytes.
fn rows(
    data: &[u8],
    bits: u16,
    canvas: &mut Canvas,
    color: impl Fn(&[u8], usize) -> [u8; 3],
) -> Result<(), ImageError> {
    let stride = (canvas.width * usize::from(bits)).div_ceil(32) * 4;
    for stored in 0..canvas.height {
        let row = data.get(stored * stride..(stored + 1) * stride);
        let row = row.ok_or_else(truncated)?;
        for (x, pixel) in canvas.row(stored).iter_mut().enumerate() {
            *pixel = color(row, x);
        }
    }
    Ok(())
}

/// Returns pixel `x` of a row with up to 8 bits per pixel, starting with the most significant bits.
fn index(row: &[u8], bits: u16, x: usize) -> u8 {
    let bits = usize::from(bits);
    let byte = row.get(x * bits / 8).copied().unwrap_or_default();
    let shift = 8 - bits - x * bits % 8;
    u8::try_from((u32::from(byte) >> shift) & ((1 << bits) - 1)).unwrap_or_default()
}

/// Reads an integer of `count` bytes in little-endian order, starting at byte `start`. Returns 0 if the row
/// is too short.
fn word(row: &[u8], start: usize, count: usize) -> u32 {
    let bytes = row.get(start..start + count).unwrap_or_default();
    let low_first = bytes.iter().rev();
    low_first.fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// Decodes runs, literal pixels and moves. All other pixels have the first palette color.
fn runs(
    mut data: &[u8],
    palette: &[[u8; 3]],
    of_four_bits: bool,
    canvas: &mut Canvas,
) -> Result<(), ImageError> {
    canvas
        .pixels
        .as_chunks_mut::<3>()
        .0
        .fill(palette_color(palette, 0));
    let bits = if of_four_bits { 4 } else { 8 };
    let mut x = 0;
    let mut y = 0;
    while y < canvas.height {
        let (&[count, value], rest) = data.split_first_chunk().ok_or_else(truncated)?;
        data = rest;
        match (count, value) {
            (0, 0) => (x, y) = (0, y + 1),
            (0, 1) => return Ok(()),
            (0, 2) => {
                let (&[right, up], rest) = data.split_first_chunk().ok_or_else(truncated)?;
                data = rest;
                (x, y) = (x + usize::from(right), y + usize::from(up));
            }
            (0, count) => {
                let size = (usize::from(count) * bits).div_ceil(8);
                let (pixels, rest) = data.split_at_checked(size).ok_or_else(truncated)?;
                // Literal pixels are padded to a multiple of two bytes.
                data = rest.get(size % 2..).unwrap_or_default();
                let color = |nth| palette_color(palette, index(pixels, bits as u16, nth));
                x += paint(canvas.row(y), x, count, color);
            }
            (count, value) => {
                let two = [value, value];
                let color = |nth: usize| palette_color(palette, index(&two, bits as u16, nth % 2));
                x += paint(canvas.row(y), x, count, color);
            }
        }
    }
    Ok(())
}

/// Paints up to `count` pixels starting at `x`, clipped to the row. Returns `count`.
fn paint(row: &mut [[u8; 3]], x: usize, count: u8, color: impl Fn(usize) -> [u8; 3]) -> usize {
    let count = usize::from(count);
    let pixels = row.get_mut(x..).unwrap_or_default().iter_mut().take(count);
    for (nth, pixel) in pixels.enumerate() {
        *pixel = color(nth);
    }
    count
}

fn short(bytes: &[u8], place: usize) -> Result<u16, ImageError> {
    let bytes = bytes.get(place..).and_then(|rest| rest.first_chunk());
    bytes
        .map(|&bytes| u16::from_le_bytes(bytes))
        .ok_or_else(truncated)
}

fn long(bytes: &[u8], place: usize) -> Result<u32, ImageError> {
    let bytes = bytes.get(place..).and_then(|rest| rest.first_chunk());
    bytes
        .map(|&bytes| u32::from_le_bytes(bytes))
        .ok_or_else(truncated)
}

fn truncated() -> ImageError {
    ImageError::truncated(ImageFormat::Bmp, "the data ends inside the image")
}

fn unsupported(feature: String) -> ImageError {
    ImageError::Unsupported {
        format: ImageFormat::Bmp,
        feature,
    }
}
