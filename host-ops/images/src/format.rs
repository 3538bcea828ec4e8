use crate::{ImageError, ImageFormat};
use frostline_tensor::StandIn;

/// Detects the format from the first bytes.
///
/// # Errors
/// Returns [`ImageError::Empty`], [`ImageError::UnsupportedFormat`], [`ImageError::StandIn`] or
/// [`ImageError::Unrecognized`] if the data cannot be decoded.
pub(crate) fn recognize(bytes: &[u8]) -> Result<ImageFormat, ImageError> {
    if let Some(format) = supported_format(bytes) {
        return Ok(format);
    }
    if let Some(name) = unsupported_format_name(bytes) {
        return Err(ImageError::UnsupportedFormat { name });
    }
    if bytes.is_empty() {
        return Err(ImageError::Empty);
    }
    if let Some(stand_in) = StandIn::detect(bytes) {
        return Err(stand_in.into());
    }
    let start = bytes.get(..bytes.len().min(8)).unwrap_or_default();
    let hex: Vec<String> = start.iter().map(|byte| format!("{byte:02x}")).collect();
    Err(ImageError::Unrecognized {
        start: format!("\"{}\" ({})", start.escape_ascii(), hex.join(" ")),
    })
}

fn supported_format(bytes: &[u8]) -> Option<ImageFormat> {
    let starts = |start: &[u8]| bytes.starts_with(start);
    Some(match bytes {
        _ if starts(&[0xff, 0xd8, 0xff]) => ImageFormat::Jpeg,
        _ if starts(b"\x89PNG\r\n\x1a\n") => ImageFormat::Png,
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => ImageFormat::WebP,
        _ if starts(b"GIF87a") || starts(b"GIF89a") => ImageFormat::Gif,
        // Many files start with these two letters, so the reserved bytes and the header size are checked as
        // well.
        _ if starts(b"BM")
            && bytes.get(6..10) == Some(&[0; 4])
            && matches!(bytes.get(14..18), Some([12..=124, 0, 0, 0])) =>
        {
            ImageFormat::Bmp
        }
        _ => return None,
    })
}

fn unsupported_format_name(bytes: &[u8]) -> Option<&'static str> {
    const STARTS: [(&[u8], &str); 13] = [
        (b"\xff\x0a", "JPEG XL"),
        (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
        (b"\xff\x4f\xff\x51", "JPEG 2000"),
        (b"II*\0", "TIFF"),
        (b"MM\0*", "TIFF"),
        (b"II+\0", "TIFF"),
        (b"MM\0+", "TIFF"),
        (b"8BPS", "Photoshop's PSD"),
        (b"%PDF", "PDF"),
        (b"<svg", "SVG"),
        (b"v/1\x01", "OpenEXR"),
        (b"qoif", "QOI"),
    ];
    let found = STARTS.iter().find(|(start, _)| bytes.starts_with(start));
    match found {
        Some((_, name)) => Some(name),
        None if bytes.get(128..132) == Some(b"DICM") => Some("DICOM"),
        None if bytes.starts_with(b"<?xml") && contains_svg(bytes) => Some("SVG"),
        None => media_brand(bytes),
    }
}

/// Returns true if an SVG element begins within the first bytes of an XML document.
fn contains_svg(bytes: &[u8]) -> bool {
    const PROLOG: usize = 1024;
    let prolog = bytes.get(..PROLOG).unwrap_or(bytes);
    prolog.windows(4).any(|start| start == b"<svg")
}

/// Detects formats in ISO media files by brand. The major brand is checked first, then the compatible brands.
fn media_brand(bytes: &[u8]) -> Option<&'static str> {
    /// Upper bound for the number of brands that are checked.
    const BRANDS: usize = 32;
    let (size, rest) = bytes.split_first_chunk::<4>()?;
    let brands = rest.strip_prefix(b"ftyp")?;
    let listed = (u32::from_be_bytes(*size) as usize)
        .saturating_sub(8)
        .min(brands.len());
    let brands = brands.get(..listed)?.as_chunks::<4>().0.iter().take(BRANDS);
    let named = brands.map(|brand| match brand {
        b"avif" | b"avis" => Some("AVIF"),
        b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" => Some("HEIC"),
        b"crx " => Some("Canon's CR3"),
        _ => None,
    });
    // The generic HEIF brand may precede the specific brand.
    named.flatten().next().or_else(|| {
        let any = rest.get(4..8)?;
        (any == b"mif1" || any == b"msf1").then_some("HEIF")
    })
}
