//! The binary PPM format: `P6`, width, height, 255, one byte of white space, then red, green and blue of each pixel.

/// 8-bit RGB, row by row.
pub(crate) struct Picture<'a> {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) pixels: &'a [[u8; 3]],
}

/// Reads a picture; the pixels stay where they are.
pub(crate) fn decode(bytes: &[u8]) -> Result<Picture<'_>, &'static str> {
    let rest = bytes.strip_prefix(b"P6").ok_or("it does not begin with P6")?;
    let (width, rest) = number(rest)?;
    let (height, rest) = number(rest)?;
    let (depth, rest) = number(rest)?;
    if depth != 255 {
        return Err("only 8 bits a color are read");
    }
    let (_, rest) = rest.split_first().ok_or("it ends after its header")?;
    let (pixels, _) = rest.as_chunks::<3>();
    let count = usize::try_from(u64::from(width) * u64::from(height)).map_err(|_| "it is too large")?;
    if count == 0 {
        return Err("it has no pixels");
    }
    let pixels = pixels.get(..count).ok_or("it has fewer pixels than it says")?;
    Ok(Picture {
        width,
        height,
        pixels,
    })
}

/// The next decimal number, after white space and `#` comments.
fn number(mut rest: &[u8]) -> Result<(u32, &[u8]), &'static str> {
    loop {
        rest = rest.trim_ascii_start();
        if !rest.starts_with(b"#") {
            break;
        }
        let end = rest.iter().position(|&byte| byte == b'\n');
        rest = &rest[end.ok_or("it ends in a comment")?..];
    }
    let end = rest
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .ok_or("it ends in its header")?;
    let (digits, rest) = rest.split_at(end);
    let text = std::str::from_utf8(digits).map_err(|_| "its header is no text")?;
    let number = text.parse().map_err(|_| "its header lacks a number")?;
    Ok((number, rest))
}
