//! Images whose headers lie.

/// A JPEG of 221 bytes that some readers take for one of 16 x 16 pixels and others for one of 20,000 x 20,000: behind `FFD0`, a marker
/// without a segment that some give one, stands a frame header that the others skip.
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
    // A quantization table of ones.
    jpeg.extend([0xff, 0xdb, 0, 67, 0]);
    jpeg.extend([1; 64]);
    jpeg.extend(frame(20_000));
    // One code each, of one bit: no difference, and the end of the block.
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

/// A frame header of one component, `side` pixels a side.
fn frame(side: u16) -> Vec<u8> {
    let [high, low] = side.to_be_bytes();
    vec![0xff, 0xc0, 0, 11, 8, high, low, high, low, 1, 1, 0x11, 0]
}
