//! Sizes of compressed buffers after decompression, read before decompressing.

use crate::{Compression, FrameError};
use arrow_ipc::{BodyCompressionMethod, CompressionType, RecordBatch as BatchHeader};

/// Size of the prefix of compressed buffers. It contains the decompressed size, or -1 if the buffer is not
/// compressed.
const PREFIX: usize = 8;

/// Maximum compression ratio of LZ4. The format encodes up to 255 bytes in one, and the frame header reduces
/// the ratio.
const LZ4_RATIO: usize = 255;

/// Compression of the buffers in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    Plain,
    Lz4,
    Zstd,
}

impl Codec {
    /// Returns the codec of a batch.
    ///
    /// # Errors
    /// Returns an error if the batch is compressed in a different way than requested.
    pub(crate) fn for_batch(batch: &BatchHeader<'_>, asked: Compression) -> Result<Self, FrameError> {
        let Some(compression) = batch.compression() else {
            return Ok(Self::Plain);
        };
        match (compression.method(), compression.codec(), asked) {
            (BodyCompressionMethod::BUFFER, CompressionType::LZ4_FRAME, Compression::Lz4) => Ok(Self::Lz4),
            (BodyCompressionMethod::BUFFER, CompressionType::ZSTD, Compression::Zstd) => Ok(Self::Zstd),
            _ => Err(FrameError::malformed(
                "the compression of the batch was not requested",
            )),
        }
    }
}

/// Returns the claimed size of a buffer after decompression, or `None` if the claim is impossible. Arrow's
/// decoder allocates this number of bytes and rejects buffers with a different actual size.
pub(crate) fn decompressed_size(buffer: &[u8], codec: Codec) -> Option<usize> {
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
        assert_eq!(decompressed_size(&[0; 24], Codec::Plain), Some(24));
        assert_eq!(decompressed_size(&[], Codec::Zstd), Some(0));
        assert_eq!(decompressed_size(&buffer(-1, 16), Codec::Lz4), Some(16));
        assert_eq!(decompressed_size(&buffer(0, 0), Codec::Lz4), Some(0));
        assert_eq!(decompressed_size(&buffer(2000, 16), Codec::Lz4), Some(2000));
        assert_eq!(
            decompressed_size(&buffer(1 << 30, 16), Codec::Zstd),
            Some(1 << 30)
        );
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert_eq!(decompressed_size(&[0; 7], Codec::Zstd), None);
        assert_eq!(decompressed_size(&buffer(-2, 16), Codec::Zstd), None);
        assert_eq!(decompressed_size(&buffer(i64::MIN, 16), Codec::Zstd), None);
        assert_eq!(decompressed_size(&buffer(1 << 30, 16), Codec::Lz4), None);
    }
}
