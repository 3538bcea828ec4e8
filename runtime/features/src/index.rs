//! The index: of the n-th row of a store, the n-th record, which says whose it is and what its bytes come to.

use crate::RowKey;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes of a record: a key and a checksum.
pub(crate) const RECORD: usize = RowKey::BYTES + 8;

/// Where a row lies, and what its bytes come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) number: u64,
    pub(crate) checksum: u64,
}

/// The rows of a store that are known.
#[derive(Debug, Default)]
pub(crate) struct Index {
    rows: HashMap<RowKey, Slot>,
    /// Records that were read or written.
    records: u64,
}

impl Index {
    /// Reads the records that `file` has beyond those known. A part of a record at its end is one that nobody finished.
    pub(crate) fn read_on(&mut self, file: &File) -> io::Result<()> {
        let length = file.metadata()?.len() / RECORD as u64;
        // Shorter than it was: somebody cut it, and what lay behind is written anew.
        if length < self.records {
            *self = Self::default();
        }
        let mut bytes = vec![0; (length - self.records) as usize * RECORD];
        file.read_exact_at(&mut bytes, self.records * RECORD as u64)?;
        for record in bytes.as_chunks::<RECORD>().0 {
            let (key, checksum) = record.split_at(RowKey::BYTES);
            let (Ok(key), Ok(checksum)) = (key.try_into(), checksum.try_into()) else {
                continue;
            };
            self.add(RowKey(key), u64::from_le_bytes(checksum));
        }
        Ok(())
    }

    /// The next row is this one's.
    pub(crate) fn add(&mut self, key: RowKey, checksum: u64) {
        let number = self.records;
        self.rows.insert(key, Slot { number, checksum });
        self.records += 1;
    }

    pub(crate) fn get(&self, key: &RowKey) -> Option<Slot> {
        self.rows.get(key).copied()
    }

    /// Forgets a row that lies in `slot`, unless it lies elsewhere by now.
    pub(crate) fn forget(&mut self, key: &RowKey, slot: Slot) {
        if self.get(key) == Some(slot) {
            self.rows.remove(key);
        }
    }

    /// All rows, each with its number, in no order.
    pub(crate) fn all(&self) -> Vec<(u64, RowKey)> {
        self.rows.iter().map(|(key, slot)| (slot.number, *key)).collect()
    }

    /// Records, those of rows that were forgotten or replaced among them.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }
}

/// Appends the record of `key` to `bytes`.
pub(crate) fn append(bytes: &mut Vec<u8>, key: &RowKey, checksum: u64) {
    bytes.extend_from_slice(&key.0);
    bytes.extend_from_slice(&checksum.to_le_bytes());
}
