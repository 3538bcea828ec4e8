//! Images with ambiguous headers.

/// Returns a JPEG of 221 bytes with an ambiguous size. A frame header of 16 x 16 pixels follows the marker
/// `FFD0`, which has no segment. Readers that expect a segment after this marker skip the frame header and
/// use the next one, with 20,000 x 20,000 pixels.
pub fn hidden_frame() -> Vec<u8> {
    let seen = frame(0xc0, 16);
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
    jpeg.extend(frame(0xc0, 20_000));
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
fn frame(marker: u8, side: u16) -> Vec<u8> {
    let [high, low] = side.to_be_bytes();
    vec![0xff, marker, 0, 11, 8, high, low, high, low, 1, 1, 0x11, 0]
}

/// Returns a gray JPEG of 4096 x 4096 pixels with 100 progressive scans in 36 KiB. The first scan has a bit for
/// each block, and the others declare that all blocks end. Each scan costs the decoder a pass over the image.
pub fn many_scans() -> Vec<u8> {
    const SIDE: u16 = 4096;
    const BLOCKS: usize = (SIDE as usize / 8).pow(2);
    let frame = frame(0xc2, SIDE);
    let mut jpeg = [&[0xff, 0xd8, 0xff, 0xdb, 0, 67, 0][..], &[1; 64], &frame].concat();
    // A 1-bit code for a zero difference, and codes of 1 and 2 bits for runs of blocks that end.
    jpeg.extend([&[0xff, 0xc4, 0, 20, 0x00, 1][..], &[0; 15], &[0]].concat());
    jpeg.extend([&[0xff, 0xc4, 0, 21, 0x10, 1, 1][..], &[0; 14], &[0xe0, 0x30]].concat());
    jpeg.extend([0xff, 0xda, 0, 8, 1, 1, 0, 0, 0, 0]);
    jpeg.extend(vec![0; BLOCKS / 8]);
    // Eight runs of 32,767 blocks, and a run of the remaining eight.
    let bits = format!("{}10000", "011111111111111".repeat(8));
    let bits: Vec<u8> = bits.bytes().map(|bit| bit - b'0').collect();
    let mut scan = vec![0xff, 0xda, 0, 8, 1, 1, 0, 1, 63, 0];
    for group in bits.chunks(8) {
        let byte = group.iter().fold(0, |byte, bit| byte << 1 | bit) << (8 - group.len());
        scan.push(byte);
        scan.extend((byte == 0xff).then_some(0));
    }
    jpeg.extend(scan.repeat(99));
    jpeg.extend([0xff, 0xd9]);
    jpeg
}
