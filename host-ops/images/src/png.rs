use crate::claim::ParsedImage;
use crate::orientation::Orientation;
use crate::{DecodeLimits, ImageError, ImageFormat};
use png::{
    BitDepth, ColorType, Decoder, DecodingError, Info, InterlaceInfo, Limits, Reader, Transformations,
    expand_interlaced_row,
};
use std::io::{Cursor, ErrorKind};

/// Maximum bytes of ancillary chunks. A camera's EXIF needs about 64 KiB, and larger chunks do not affect
/// pixels.
const CHUNKS: usize = 1 << 20;

/// Work of a row in addition to its pixels, for filters and decompression.
const ROW_WORK: u64 = 32;

/// Work of a pixel in an interlaced image. Pixels are copied one by one.
const INTERLACED_WORK: u64 = 5;

/// Parses a PNG's headers. The result of decoding is equal to Pillow's except for 16-bit gray. Alpha is
/// dropped. Gamma and color profiles are ignored.
pub(crate) fn read<'a>(bytes: &'a [u8], limits: &DecodeLimits) -> Result<ParsedImage<'a>, ImageError> {
    let mut decoder = Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(Transformations::IDENTITY);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let info = decoder.read_header_info().map_err(explain)?;
    let (width, height) = info.size();
    let size = limits.check(ImageFormat::Png, width, height)?;
    let memory_needed = memory_needed(info, size);
    let row = row_bytes(info);
    let work = work(info);
    let slow_because = if info.interlaced { ", interlaced" } else { "" };
    // The decoder includes an output row in this limit.
    decoder.set_limits(Limits {
        bytes: row.saturating_add(CHUNKS),
    });
    Ok(ParsedImage {
        width,
        height,
        orientation: orientation(bytes),
        memory_needed,
        work,
        slow_because: slow_because.to_owned(),
        decode: Box::new(move || pixels(decoder, size)),
    })
}

/// Reads the orientation from chunks before or after the image data. Compressed XMP is ignored.
fn orientation(bytes: &[u8]) -> Orientation {
    let mut exif = None;
    let mut xmp = None;
    for (name, body) in chunks(bytes.get(8..).unwrap_or_default()) {
        match &name {
            b"eXIf" => exif = Some(body),
            b"iTXt" if body.starts_with(b"XML:com.adobe.xmp\0") => xmp = Some(body),
            _ => {}
        }
    }
    Orientation::from_metadata(exif, xmp)
}

/// Returns name and body of each complete chunk.
fn chunks(mut rest: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    std::iter::from_fn(move || {
        let (size, after) = rest.split_first_chunk::<4>()?;
        let (name, after) = after.split_first_chunk::<4>()?;
        let size = u32::from_be_bytes(*size) as usize;
        let body = after.get(..size)?;
        rest = after.get(size.saturating_add(4)..).unwrap_or_default();
        Some((*name, body))
    })
}

fn row_bytes(info: &Info<'_>) -> usize {
    let bits = info.bits_per_pixel() as u64 * u64::from(info.width);
    usize::try_from(bits.div_ceil(8)).unwrap_or(usize::MAX)
}

/// Maximum bytes allocated while decoding: the RGB pixels, all samples if the image is interlaced, and about
/// six rows that are being decompressed and filtered. Their buffer grows by doubling (`unfiltering_buffer.rs`
/// in png) up to the size of the image.
fn memory_needed(info: &Info<'_>, rgb: usize) -> u64 {
    let row = row_bytes(info) as u64 + 1;
    let samples = row * u64::from(info.height);
    let whole = if info.interlaced { samples } else { 0 };
    let at_work = 2 * samples.min(6 * row + (300 << 10)) + 4 * row;
    rgb as u64 + whole + at_work + 2 * CHUNKS as u64
}

/// Work of decoding in pixels of a baseline JPEG. Rows have a fixed cost, so narrow images are expensive.
fn work(info: &Info<'_>) -> u64 {
    let (width, height) = info.size();
    let pixels = u64::from(width) * u64::from(height);
    if info.interlaced {
        u64::from(interlaced_rows(width, height)) * ROW_WORK + INTERLACED_WORK * pixels
    } else {
        u64::from(height) * ROW_WORK + 2 * pixels
    }
}

fn pixels(decoder: Decoder<Cursor<&[u8]>>, size: usize) -> Result<Vec<u8>, ImageError> {
    let mut reader = decoder.read_info().map_err(explain)?;
    let rows = RowConverter::new(reader.info())?;
    let mut pixels = Vec::new();
    pixels.reserve_exact(size);
    if reader.info().interlaced {
        let samples = read_interlaced(&mut reader)?;
        for row in samples.chunks_exact(row_bytes(reader.info()).max(1)) {
            rows.append(row, &mut pixels);
        }
    } else {
        for _ in 0..reader.info().height {
            let row = reader.next_row().map_err(explain)?.ok_or_else(failed)?;
            rows.append(row.data(), &mut pixels);
        }
    }
    // Reads on to verify the checksums. Like in Pillow, these and the end marker may be missing.
    match reader.next_row() {
        Err(error) if !is_end(&error) => Err(explain(error)),
        _ => Ok(pixels),
    }
}
/// Reads all passes of an interlaced image and returns the samples.
fn read_interlaced(reader: &mut Reader<Cursor<&[u8]>>) -> Result<Vec<u8>, ImageError> {
    let info = reader.info();
    let width = info.width;
    let height = info.height;
    let stride = row_bytes(info);
    // The maximum is 64 bits per pixel.
    let bits = u8::try_from(info.bits_per_pixel()).map_err(|_| failed())?;
    let mut samples = vec![0; reader.output_buffer_size().ok_or_else(failed)?];
    for _ in 0..interlaced_rows(width, height) {
        let row = reader
            .next_interlaced_row()
            .map_err(explain)?
            .ok_or_else(failed)?;
        let InterlaceInfo::Adam7(position) = row.interlace() else {
            return Err(failed());
        };
        expand_interlaced_row(&mut samples, stride, row.data(), position, bits);
    }
    Ok(samples)
}

/// Returns the total number of rows in the seven passes of an interlaced image.
fn interlaced_rows(width: u32, height: u32) -> u32 {
    /// First column, first row, and distance between rows in each pass.
    const PASSES: [(u32, u32, u32); 7] = [
        (0, 0, 8),
        (4, 0, 8),
        (0, 4, 8),
        (2, 0, 4),
        (0, 2, 4),
        (1, 0, 2),
        (0, 1, 2),
    ];
    let passes = PASSES.iter().filter(|(column, ..)| *column < width);
    passes
        .map(|(_, row, step)| height.saturating_sub(*row).div_ceil(*step))
        .sum()
}

fn failed() -> ImageError {
    ImageError::DecoderFailed {
        format: ImageFormat::Png,
    }
}

/// Returns true if the decoder has reached the end of the data.
fn is_end(error: &DecodingError) -> bool {
    matches!(error, DecodingError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof)
}

fn explain(error: DecodingError) -> ImageError {
    if is_end(&error) {
        return ImageError::truncated(ImageFormat::Png, "the data ends inside the image");
    }
    let reason = match error {
        DecodingError::IoError(error) => error.to_string(),
        DecodingError::Format(error) => error.to_string(),
        DecodingError::Parameter(error) => error.to_string(),
        DecodingError::LimitsExceeded => "a chunk exceeds the size limit".to_owned(),
    };
    ImageError::malformed(ImageFormat::Png, reason)
}

/// Converts rows as stored in a PNG to RGB.
struct RowConverter {
    color: ColorType,
    depth: BitDepth,
    width: usize,
    /// 256 colors. Like in Pillow, undefined entries are black.
    palette: Vec<[u8; 3]>,
}

impl RowConverter {
    fn new(info: &png::Info<'_>) -> Result<Self, ImageError> {
        let mut palette = vec![[0; 3]; 256];
        let colors = info.palette.as_deref().unwrap_or_default().as_chunks::<3>().0;
        for (entry, color) in palette.iter_mut().zip(colors) {
            *entry = *color;
        }
        if info.color_type == ColorType::Indexed && colors.is_empty() {
            return Err(ImageError::malformed(ImageFormat::Png, "the palette is missing"));
        }
        let width = usize::try_from(info.width).unwrap_or(usize::MAX);
        Ok(Self {
            color: info.color_type,
            depth: info.bit_depth,
            width,
            palette,
        })
    }

    /// Appends a row as RGB.
    fn append(&self, row: &[u8], pixels: &mut Vec<u8>) {
        let wide = self.depth == BitDepth::Sixteen;
        match self.color {
            // Keeps the high byte, like 16-bit color and torchvision's `to_dtype(scale=True)`. Pillow clips
            // instead, turning X-rays white.
            ColorType::Grayscale if wide => each(row, pixels, |[high, _]| [high; 3]),
            ColorType::Grayscale => {
                let scale = 255 / low_mask(self.depth);
                pixels.extend(self.packed(row).flat_map(|value| [value * scale; 3]));
            }
            ColorType::Indexed => {
                let colors = self
                    .packed(row)
                    .filter_map(|index| self.palette.get(usize::from(index)));
                pixels.extend(colors.flatten());
            }
            ColorType::Rgb if wide => each(row, pixels, |[r, _, g, _, b, _]| [r, g, b]),
            ColorType::Rgb => pixels.extend_from_slice(row),
            ColorType::GrayscaleAlpha if wide => each(row, pixels, |[gray, _, _, _]| [gray; 3]),
            ColorType::GrayscaleAlpha => each(row, pixels, |[gray, _]| [gray; 3]),
            ColorType::Rgba if wide => each(row, pixels, |[r, _, g, _, b, _, _, _]| [r, g, b]),
            ColorType::Rgba => each(row, pixels, |[r, g, b, _]| [r, g, b]),
        }
    }

    /// Unpacks a row of samples with up to 8 bits, starting with the most significant bits.
    fn packed(&self, row: &[u8]) -> impl Iterator<Item = u8> {
        let bits = self.depth as u8;
        let mask = low_mask(self.depth);
        let samples = row
            .iter()
            .flat_map(move |&byte| (1..=8 / bits).map(move |nth| (byte >> (8 - bits * nth)) & mask));
        samples.take(self.width)
    }
}

/// Appends pixels of `N` bytes as RGB.
fn each<const N: usize>(row: &[u8], pixels: &mut Vec<u8>, rgb: impl Fn([u8; N]) -> [u8; 3]) {
    pixels.extend(row.as_chunks::<N>().0.iter().flat_map(|pixel| rgb(*pixel)));
}

fn low_mask(depth: BitDepth) -> u8 {
    match depth {
        BitDepth::One => 1,
        BitDepth::Two => 3,
        BitDepth::Four => 15,
        BitDepth::Eight | BitDepth::Sixteen => 255,
    }
}
