//! Reads the binary PPM format. The header contains `P6`, width, height and 255, followed by a white space
//! byte and the RGB pixels.

/// 8-bit RGB image, stored row by row.
pub(crate) struct Picture<'a> {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) pixels: &'a [[u8; 3]],
}

/// Decodes a picture without copying the pixels.
pub(crate) fn decode(bytes: &[u8]) -> Result<Picture<'_>, &'static str> {
    let rest = bytes
        .strip_prefix(b"P6")
        .ok_or("the file does not begin with P6")?;
    let (width, rest) = number(rest)?;
    let (height, rest) = number(rest)?;
    let (depth, rest) = number(rest)?;
    if depth != 255 {
        return Err("only 8 bits per color are supported");
    }
    let (_, rest) = rest.split_first().ok_or("the file ends after the header")?;
    let (pixels, _) = rest.as_chunks::<3>();
    let count =
        usize::try_from(u64::from(width) * u64::from(height)).map_err(|_| "the image size overflows")?;
    if count == 0 {
        return Err("the image is empty");
    }
    let pixels = pixels
        .get(..count)
        .ok_or("the file has fewer pixels than the header specifies")?;
    Ok(Picture {
        width,
        height,
        pixels,
    })
}

/// Reads the next decimal number. Skips white space and `#` comments.
fn number(mut rest: &[u8]) -> Result<(u32, &[u8]), &'static str> {
    loop {
        rest = rest.trim_ascii_start();
        if !rest.starts_with(b"#") {
            break;
        }
        let end = rest.iter().position(|&byte| byte == b'\n');
        rest = &rest[end.ok_or("the file ends in a comment")?..];
    }
    let end = rest
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .ok_or("the file ends in the header")?;
    let (digits, rest) = rest.split_at(end);
    let text = std::str::from_utf8(digits).map_err(|_| "the header is not text")?;
    let number = text
        .parse()
        .map_err(|_| "the header contains an invalid number")?;
    Ok((number, rest))
}
