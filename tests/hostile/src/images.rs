//! Images with ambiguous headers.

/// Returns a JPEG of 221 bytes with an ambiguous size. A frame header of 16 x 16 pixels follows the marker
/// `FFD0`, which has no segment. Readers that expect a segment after this marker skip the frame header and
/// use the next one, with 20,000 x 20,000 pixels.
pub fn hidden_frame() -> Vec<u8> {
    let seen = frame(16);
    let hidden = [
        &[0xff, 0xd0],
        u16::try_from(seen.len() + 2)
            .unwrap_or_default()
            .to_be_bytes()
            .as_slice(),
        &seen,
    ]
    .concat();
    let mut jpeg = vec![0xff, 0xd8];
    jpeg.extend(hidden);
    // Quantization table with ones.
    jpeg.extend([0xff, 0xdb, 0, 67, 0]);
    jpeg.extend([1; 64]);
    jpeg.extend(frame(20_000));
    // Huffman tables with a single 1-bit code, for zero difference and end of block.
    for table in [0x00, 0x10] {
        jpeg.extend([0xff, 0xc4, 0, 20, table, 1]);
        jpeg.extend([0; 15]);
        jpeg.push(0);
    }
    jpeg.extend([0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0]);
    jpeg.extend([0; 40]);
    jpeg.extend([0xff, 0xd9]);
    jpeg
}

/// Returns a frame header for an image with a single component and `side` x `side` pixels.
fn frame(side: u16) -> Vec<u8> {
    let [high, low] = side.to_be_bytes();
    vec![0xff, 0xc0, 0, 11, 8, high, low, high, low, 1, 1, 0x11, 0]
}
