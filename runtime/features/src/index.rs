//! Index of a store. The n-th record contains the key and the checksum of the n-th row.

use crate::RowKey;
use crate::row::RECORD;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Position and checksum of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) number: u64,
    pub(crate) checksum: u64,
}

/// In-memory index.
#[derive(Debug, Default)]
pub(crate) struct Index {
    rows: HashMap<RowKey, Slot>,
    /// Samples with a row for some content, by the part of the key that does not depend on the content.
    samples: HashSet<[u8; 8]>,
    /// Number of records read so far.
    records: u64,
}

impl Index {
    /// Reads the records appended to `file` since the last call. Ignores an incomplete record at the end,
    /// which remains after an interrupted write.
    pub(crate) fn read_on(&mut self, file: &File) -> io::Result<()> {
        let length = file.metadata()?.len() / RECORD as u64;
        // The file was truncated, and later records may have been overwritten. Read everything again.
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

    /// Adds the record of the next row.
    pub(crate) fn add(&mut self, key: RowKey, checksum: u64) {
        let number = self.records;
        self.rows.insert(key, Slot { number, checksum });
        self.samples.extend(key.sample_part());
        self.records += 1;
    }

    pub(crate) fn get(&self, key: &RowKey) -> Option<Slot> {
        self.rows.get(key).copied()
    }

    /// Returns true if there is a row for the sample of `key`, for this or another content.
    pub(crate) fn has_sample(&self, key: &RowKey) -> bool {
        key.sample_part().is_some_and(|part| self.samples.contains(&part))
    }

    /// Removes the row in `slot` from the index, unless the row has been written again since.
    pub(crate) fn forget(&mut self, key: &RowKey, slot: Slot) {
        if self.get(key) == Some(slot) {
            self.rows.remove(key);
        }
    }

    /// Returns the number of records, including those of forgotten or replaced rows.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }
}

/// Appends the record of `key` to `bytes`.
pub(crate) fn append(bytes: &mut Vec<u8>, key: &RowKey, checksum: u64) {
    bytes.extend_from_slice(&key.0);
    bytes.extend_from_slice(&checksum.to_le_bytes());
}
