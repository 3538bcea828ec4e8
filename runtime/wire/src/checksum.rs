//! Row checksums, which detect corrupted rows.

use crate::ActivationBatch;
use twox_hash::XxHash3_64;

/// Returns the XXH3 hash (64 bits) of an object's bytes, which hosts send for
/// [`ExtractionRequest::digests`](crate::ExtractionRequest::digests).
pub fn object_digest(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

impl ActivationBatch {
    /// Returns the XXH3 checksum (64 bits) of each row. The seed is the position. If a row has multiple parts
    /// (values, scales and offsets of each tensor, or code and message of an error), each part is seeded with the hash
    /// of the previous parts.
    pub(crate) fn checksums(&self) -> impl Iterator<Item = u64> {
        (0..self.len()).map(|row| self.checksum(row))
    }

    fn checksum(&self, row: usize) -> u64 {
        let mut hash = u64::from(self.position(row));
        let mut extend = |bytes: &[u8]| hash = XxHash3_64::oneshot_with_seed(hash, bytes);
        for tensor in self.tensors() {
            for value in [tensor.encoded(row), tensor.exact(row)].into_iter().flatten() {
                value.for_each_part(&mut extend);
            }
        }
        for text in self.error_texts(row).into_iter().flatten() {
            extend(text.as_bytes());
        }
        hash
    }
}
