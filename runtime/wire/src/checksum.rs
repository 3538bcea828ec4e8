//! Row checksums, which detect corrupted rows.

use crate::{ActivationBatch, RowValue};
use arrow_buffer::ToByteSlice;
use twox_hash::XxHash3_64;

/// Returns the XXH3 hash (64 bits) of an object's bytes, which hosts send for
/// [`ExtractionRequest::digests`](crate::ExtractionRequest::digests).
pub fn object_digest(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

impl ActivationBatch {
    /// Returns the XXH3 checksum (64 bits) of each row. The seed is the position. If a row has multiple parts
    /// (values, scales and offsets, or code and message of an error), each part is seeded with the hash of
    /// the previous parts.
    pub(crate) fn checksums(&self) -> impl Iterator<Item = u64> {
        (0..self.len()).map(|row| self.checksum(row))
    }

    fn checksum(&self, row: usize) -> u64 {
        let mut hash = u64::from(self.position(row));
        for part in self.value(row).iter().flat_map(RowValue::parts) {
            add(&mut hash, part);
        }
        if let Some(exact) = self.exact(row) {
            add(&mut hash, exact.to_byte_slice());
        }
        for text in self.error_texts(row).into_iter().flatten() {
            add(&mut hash, text.as_bytes());
        }
        hash
    }
}

/// Extends the hash of the previous parts of a row.
fn add(hash: &mut u64, bytes: &[u8]) {
    *hash = XxHash3_64::oneshot_with_seed(*hash, bytes);
}
