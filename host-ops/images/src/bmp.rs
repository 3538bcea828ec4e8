use crate::byte_order::little_endian;
use crate::claim::ParsedImage;
use crate::orientation::Orientation;
use crate::rgb::{palette_color, unpack};
use crate::{DecodeLimits, ImageError, ImageFormat};

/// Parses a BMP's headers. The result of decoding is equal to Pillow's. Supported are palettes with 1, 4 and
/// 8 bits, run-length encoding with 4 and 8 bits, and colors with 16, 24 and 32 bits. Color masks must have
/// contiguous bits at any position. Alpha is dropped.
///
/// Other libraries depend on color management or decode missing data as black.
pub(crate) fn read<'a>(bytes: &'a [u8], limits: &DecodeLimits) -> Result<ParsedImage<'a>, ImageError> {
    let header = Header::read(bytes)?;
    let size = limits.check(ImageFormat::Bmp, header.width, header.height)?;
    let coding = Coding::new(&header, bytes)?;
    Ok(ParsedImage {
        width: header.width,
        height: header.height,
        orientation: header.orientation,
        memory_needed: (size + WORK) as u64,
        work: PIXEL_WORK * u64::from(header.width) * u64::from(header.height),
        slow_because: String::new(),
        decode: Box::new(move || {
            let data = bytes.get(header.data..).unwrap_or_default();
            let mut pixels = vec![[0; 3]; size / 3];
            match &coding {
                Coding::Indices(palette) => {
                    for (row, pixels) in rows(data, &header, &mut pixels)? {
                        let indices = unpack(row, header.bits);
                        paint(pixels, indices.map(|index| palette_color(palette, index)));
                    }
                }
                Coding::Runs(palette) => runs(data, &header, palette, &mut pixels)?,
                Coding::Masks(masks) => {
                    for (row, pixels) in rows(data, &header, &mut pixels)? {
                        let words = row.chunks_exact(header.bits / 8).map(little_endian);
                        paint(pixels, words.map(|word| masks.map(|mask| mask.level(word))));
                    }
                }
            }
            Ok(pixels.into_flattened())
        }),
    })
}

/// Cost of decoding a pixel, relative to a pixel of a JPEG.
const PIXEL_WORK: u64 = 5;

/// Upper bound for the bytes of a palette.
const WORK: usize = 4 << 10;

/// Parsed BMP headers.
struct Header {
    width: u32,
    height: u32,
    /// Rows are stored from the bottom by default, and from the top if the height is negative.
    orientation: Orientation,
    /// Bits per pixel.
    bits: usize,
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
        let size = integer(bytes, 14, 4)?;
        let data = integer(bytes, 10, 4)? as usize;
        let end = 14 + size as usize;
        let mut header = match size {
            12 => Self {
                width: integer(bytes, 18, 2)?,
                height: integer(bytes, 20, 2)?,
                orientation: Orientation::BOTTOM_UP,
                bits: integer(bytes, 24, 2)? as usize,
                compression: 0,
                colors: 0,
                color_bytes: 3,
                end,
                data,
            },
            40 | 52 | 56 | 64 | 108 | 124 => {
                let height = integer(bytes, 22, 4)?.cast_signed();
                let is_top_down = height < 0;
                Self {
                    width: integer(bytes, 18, 4)?,
                    height: height.unsigned_abs(),
                    orientation: if is_top_down {
                        Orientation::default()
                    } else {
                        Orientation::BOTTOM_UP
                    },
                    bits: integer(bytes, 28, 2)? as usize,
                    compression: integer(bytes, 30, 4)?,
                    colors: integer(bytes, 46, 4)? as usize,
                    color_bytes: 4,
                    end,
                    data,
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
        match (header.compression, header.bits) {
            (0, 1 | 4 | 8) => Ok(Self::Indices(palette(header, bytes)?)),
            (1, 8) | (2, 4) => Ok(Self::Runs(palette(header, bytes)?)),
            (0, 16) => Self::masks(FIVE_BITS),
            (0, 24 | 32) => Self::masks(BYTES),
            // The masks follow a header with 40 bytes and are part of longer headers, at the same offset.
            (3, 16 | 24 | 32) => match [54, 58, 62].map(|place| integer(bytes, place, 4)) {
                [Ok(0), Ok(0), Ok(0)] if header.bits == 32 => Self::masks(BYTES),
                [red, green, blue] => Self::masks([red?, green?, blue?]),
            },
            (compression, bits) => Err(unsupported(format!(
                "{bits} bits per pixel with compression {compression}"
            ))),
        }
    }

    fn masks([red, green, blue]: [u32; 3]) -> Result<Self, ImageError> {
        Ok(Self::Masks([
            Mask::new(red)?,
            Mask::new(green)?,
            Mask::new(blue)?,
        ]))
    }
}

/// Position of a channel's bits in a pixel.
#[derive(Clone, Copy)]
struct Mask {
    bits: u32,
    shift: u32,
}

impl Mask {
    fn new(mask: u32) -> Result<Self, ImageError> {
        let shift = mask.trailing_zeros();
        match mask.checked_shr(shift) {
            Some(bits) if bits.checked_add(1).is_none_or(u32::is_power_of_two) => Ok(Self { bits, shift }),
            _ => Err(unsupported("zero or non-contiguous color masks".to_owned())),
        }
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
    let colors = colors.chunks_exact(header.color_bytes).map(|color| {
        let [blue, green, red, _] = little_endian(color).to_le_bytes();
        [red, green, blue]
    });
    Ok(colors.collect())
}

/// Returns the stored rows with their pixels. Rows are padded to a multiple of four bytes.
fn rows<'a>(
    data: &'a [u8],
    header: &Header,
    pixels: &'a mut [[u8; 3]],
) -> Result<impl Iterator<Item = (&'a [u8], &'a mut [[u8; 3]])>, ImageError> {
    let width = header.width as usize;
    let stride = (width * header.bits).div_ceil(32) * 4;
    if data.len() < stride * header.height as usize {
        return Err(truncated());
    }
    Ok(data.chunks_exact(stride).zip(pixels.chunks_exact_mut(width)))
}

/// Decodes runs, literal pixels and moves. All other pixels have the first palette color.
fn runs(
    mut data: &[u8],
    header: &Header,
    palette: &[[u8; 3]],
    pixels: &mut [[u8; 3]],
) -> Result<(), ImageError> {
    pixels.fill(palette_color(palette, 0));
    let color = |index| palette_color(palette, index);
    let mut rows = pixels.chunks_exact_mut(header.width as usize);
    let mut row = rows.next();
    let mut x = 0;
    while let Some(pixels) = &mut row {
        let (&[count, value], rest) = data.split_first_chunk().ok_or_else(truncated)?;
        data = rest;
        // Pixels beyond the end of the row are skipped.
        let pixels = pixels.get_mut(x..).unwrap_or_default();
        match (usize::from(count), value) {
            (0, 0) => {
                row = rows.next();
                x = 0;
            }
            (0, 1) => return Ok(()),
            (0, 2) => {
                let (&[right, up], rest) = data.split_first_chunk().ok_or_else(truncated)?;
                data = rest;
                x += usize::from(right);
                if let Some(skipped) = up.checked_sub(1) {
                    row = rows.nth(skipped.into());
                }
            }
            (0, count) => {
                let count = usize::from(count);
                let size = (count * header.bits).div_ceil(8);
                let (literal, rest) = data.split_at_checked(size).ok_or_else(truncated)?;
                // Literal pixels are padded to a multiple of two bytes.
                data = rest.get(size % 2..).unwrap_or_default();
                paint(pixels, unpack(literal, header.bits).take(count).map(color));
                x += count;
            }
            (count, value) => {
                paint(
                    pixels,
                    unpack(&[value], header.bits).cycle().take(count).map(color),
                );
                x += count;
            }
        }
    }
    Ok(())
}

/// Sets pixels until there are no more pixels or colors.
fn paint(pixels: &mut [[u8; 3]], colors: impl Iterator<Item = [u8; 3]>) {
    for (pixel, color) in pixels.iter_mut().zip(colors) {
        *pixel = color;
    }
}

/// Reads an integer of `size` bytes.
fn integer(bytes: &[u8], start: usize, size: usize) -> Result<u32, ImageError> {
    let bytes = bytes.get(start..start + size);
    bytes.map(little_endian).ok_or_else(truncated)
}

fn truncated() -> ImageError {
    ImageError::truncated(ImageFormat::Bmp, "the data ends inside the image")
}

fn unsupported(feature: String) -> ImageError {
    ImageError::unsupported(ImageFormat::Bmp, feature)
}
