//! Records of a key and a number, which processes append to a file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Size of a key in bytes.
pub(crate) const KEY: usize = 16;

/// Size of a record in bytes.
pub(crate) const RECORD: usize = KEY + 8;

/// Returns the records after the first `known`. Ignores an incomplete record at the end, which remains after an
/// interrupted write.
pub(crate) fn read_after(file: &File, known: u64) -> io::Result<Vec<([u8; KEY], u64)>> {
    let count = file.metadata()?.len() / RECORD as u64;
    let mut bytes = vec![0; count.saturating_sub(known) as usize * RECORD];
    file.read_exact_at(&mut bytes, known * RECORD as u64)?;
    let records = bytes.as_chunks::<RECORD>().0.iter().filter_map(|record| {
        let (key, number) = record.split_first_chunk()?;
        Some((*key, u64::from_le_bytes(number.try_into().ok()?)))
    });
    Ok(records.collect())
}

/// Appends a record to `bytes`.
pub(crate) fn append(bytes: &mut Vec<u8>, key: &[u8; KEY], number: u64) {
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(&number.to_le_bytes());
}
