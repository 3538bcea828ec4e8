//! What a compressed buffer claims to decompress to, read before anything is decompressed.

use crate::{Compression, FrameError};
use arrow_ipc::{BodyCompressionMethod, CompressionType, RecordBatch as BatchHeader};

/// Bytes before a compressed buffer: its decompressed length, or -1 when it is not compressed after all.
const PREFIX: usize = 8;

/// The most a buffer can grow by LZ4, whose format cannot code more than 255 bytes in one; a frame's header makes it less.
const LZ4_RATIO: usize = 255;

/// How the buffers of a batch are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    Plain,
    Lz4,
    Zstd,
}

impl Codec {
    /// The codec of a batch; one that was not asked for is refused.
    pub(crate) fn for_batch(batch: &BatchHeader<'_>, asked: Compression) -> Result<Self, FrameError> {
        let Some(compression) = batch.compression() else {
            return Ok(Self::Plain);
        };
        match (compression.method(), compression.codec(), asked) {
            (BodyCompressionMethod::BUFFER, CompressionType::LZ4_FRAME, Compression::Lz4) => Ok(Self::Lz4),
            (BodyCompressionMethod::BUFFER, CompressionType::ZSTD, Compression::Zstd) => Ok(Self::Zstd),
            _ => Err(FrameError::malformed(
                "a compressed batch, which was not asked for",
            )),
        }
    }
}

/// Bytes of a buffer once decompressed, as it claims; `None` when it cannot be true. Arrow's decoder allocates as much, then
/// refuses a buffer that does not come to exactly it.
pub(crate) fn unpacked(buffer: &[u8], codec: Codec) -> Option<usize> {
    if codec == Codec::Plain || buffer.is_empty() {
        return Some(buffer.len());
    }
    let (prefix, rest) = buffer.split_first_chunk::<PREFIX>()?;
    match i64::from_le_bytes(*prefix) {
        -1 => Some(rest.len()),
        claimed => usize::try_from(claimed)
            .ok()
            .filter(|&claimed| codec != Codec::Lz4 || claimed <= rest.len().saturating_mul(LZ4_RATIO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(claimed: i64, rest: usize) -> Vec<u8> {
        [claimed.to_le_bytes().as_slice(), &vec![0; rest]].concat()
    }

    #[test]
    fn a_buffer_says_what_it_becomes() {
        assert_eq!(unpacked(&[0; 24], Codec::Plain), Some(24));
        assert_eq!(unpacked(&[], Codec::Zstd), Some(0));
        assert_eq!(unpacked(&buffer(-1, 16), Codec::Lz4), Some(16));
        assert_eq!(unpacked(&buffer(0, 0), Codec::Lz4), Some(0));
        assert_eq!(unpacked(&buffer(2000, 16), Codec::Lz4), Some(2000));
        assert_eq!(unpacked(&buffer(1 << 30, 16), Codec::Zstd), Some(1 << 30));
    }

    #[test]
    fn lies_are_refused() {
        assert_eq!(unpacked(&[0; 7], Codec::Zstd), None);
        assert_eq!(unpacked(&buffer(-2, 16), Codec::Zstd), None);
        assert_eq!(unpacked(&buffer(i64::MIN, 16), Codec::Zstd), None);
        assert_eq!(unpacked(&buffer(1 << 30, 16), Codec::Lz4), None);
    }
}
