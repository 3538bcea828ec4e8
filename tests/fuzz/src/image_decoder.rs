//! Images: what a decoder claims after the headers is what it makes.

use frostline_images::{DecodeLimits, Undecoded};
use std::path::Path;

/// Small, so that claims go beyond it often and what stays below is decoded soon.
const LIMITS: DecodeLimits = DecodeLimits {
    max_pixels: 1 << 18,
    max_bytes: 1 << 30,
};

/// Reads the bytes as an image, as they are and as a PNG whose checksums are right, and decodes it.
///
/// # Panics
/// When an image is over the limits, or another size is decoded than was claimed.
pub fn image_decoder(data: &[u8]) {
    decode(data);
    let mut mended = data.to_vec();
    if mend_checksums(&mut mended) {
        decode(&mended);
    }
}

fn decode(data: &[u8]) {
    let Ok(image) = Undecoded::read(data, &LIMITS) else {
        return;
    };
    let (width, height, takes) = (image.width(), image.height(), image.takes());
    let pixels = u64::from(width) * u64::from(height);
    assert!(pixels <= LIMITS.max_pixels, "{width}x{height} pixels are let in");
    assert!(takes >= 3 * pixels, "{width}x{height} pixels in {takes} bytes");
    if let Ok(decoded) = image.decode() {
        assert_eq!((decoded.width(), decoded.height()), (width, height));
        assert_eq!(decoded.pixels().len() as u64, 3 * pixels);
    }
}

/// Makes a PNG's checksums right again, so that changes reach beyond them; whether there was one to mend.
pub fn mend_checksums(bytes: &mut [u8]) -> bool {
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

/// The checksum of a PNG's chunk: <https://www.w3.org/TR/png-3/#D-CRCAppendix>.
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

/// An image of every kind, and one whose frame header stands where only some readers see it.
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
