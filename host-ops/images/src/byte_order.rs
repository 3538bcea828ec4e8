//! Integers of up to four bytes in image headers.

/// Reads an integer with the least significant byte first.
pub(crate) fn little_endian(bytes: &[u8]) -> u32 {
    let high_first = bytes.iter().rev();
    high_first.fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Reads an integer with the most significant byte first.
pub(crate) fn big_endian(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
}
