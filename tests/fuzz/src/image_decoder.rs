//! Fuzz target for images. Decoded images must have the size and memory stated by the decoder after reading
//! the headers.

use frostline_images::{DecodeLimits, Undecoded};
use std::path::Path;

/// Small limits that many mutations exceed. Images within the limits are decoded quickly.
const LIMITS: DecodeLimits = DecodeLimits {
    max_pixels: 1 << 18,
    max_bytes: 1 << 30,
    max_work: 1 << 30,
};

/// Decodes the bytes as an image, both unchanged and with corrected PNG checksums.
///
/// # Panics
/// Panics if an image exceeds the limits or the decoded size differs from the header's.
pub fn image_decoder(data: &[u8]) {
    decode(data);
    let mut mended = data.to_vec();
    if fix_png_checksums(&mut mended) {
        decode(&mended);
    }
}

fn decode(data: &[u8]) {
    let Ok(image) = Undecoded::read(data, &LIMITS) else {
        return;
    };
    let (width, height, takes) = (image.width(), image.height(), image.memory_needed());
    let pixels = u64::from(width) * u64::from(height);
    assert!(pixels <= LIMITS.max_pixels, "accepted {width}x{height} pixels");
    assert!(takes >= 3 * pixels, "{width}x{height} pixels in {takes} bytes");
    if let Ok(decoded) = image.decode() {
        assert_eq!((decoded.width(), decoded.height()), (width, height));
        assert_eq!(decoded.pixels().len() as u64, 3 * pixels);
    }
}

/// Corrects the checksums of a PNG. Otherwise mutations would not reach the code after the checks. Returns
/// true if the bytes are a PNG.
pub fn fix_png_checksums(bytes: &mut [u8]) -> bool {
    let signature = b"\x89PNG\r\n\x1a\n";
    let Some(mut rest) = bytes.starts_with(signature).then(|| bytes.get_mut(8..)).flatten() else {
        return false;
    };
    loop {
        let length = rest
            .first_chunk()
            .map_or(0, |&length| u32::from_be_bytes(length) as usize);
        let Some((chunk, after)) = length
            .checked_add(12)
            .and_then(|whole| std::mem::take(&mut rest).split_at_mut_checked(whole))
        else {
            return true;
        };
        if let Some((body, checksum)) = chunk.split_last_chunk_mut::<4>() {
            *checksum = crc32(body.get(4..).unwrap_or_default()).to_be_bytes();
        }
        rest = after;
    }
}

/// Computes the checksum of a PNG chunk: <https://www.w3.org/TR/png-3/#D-CRCAppendix>.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |c, _| {
            if c & 1 == 1 {
                (c >> 1) ^ 0xedb8_8320
            } else {
                c >> 1
            }
        })
    })
}

/// Returns an image in each format, and one with a frame header that some decoders miss.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../host-ops/images/tests/fixtures");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|end| end != "ppm" && end != "md" && end != "py")
        })
        .collect();
    files.sort();
    let images = files.iter().filter_map(|file| std::fs::read(file).ok());
    images.chain([frostline_hostile::hidden_frame()]).collect()
}
