//! Index of a store. The n-th record contains the key and the checksum of the n-th row.

use crate::RowKey;
use crate::records::{RECORD, read_after};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;

/// Position and checksum of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowSlot {
    pub(crate) number: u64,
    pub(crate) checksum: u64,
}

/// In-memory index.
#[derive(Debug, Default)]
pub(crate) struct RowIndex {
    rows: HashMap<RowKey, RowSlot>,
    /// Samples with a row for some content, by the part of the key that does not depend on the content.
    samples: HashSet<[u8; 8]>,
    /// Number of records read so far.
    records: u64,
}

impl RowIndex {
    /// Reads the records appended to `file` since the last call.
    pub(crate) fn read_on(&mut self, file: &File) -> io::Result<()> {
        // The file was truncated, and later records may have been overwritten. Read everything again.
        if file.metadata()?.len() / (RECORD as u64) < self.records {
            *self = Self::default();
        }
        for (key, checksum) in read_after(file, self.records)? {
            self.add(RowKey(key), checksum);
        }
        Ok(())
    }

    /// Adds the record of the next row.
    fn add(&mut self, key: RowKey, checksum: u64) {
        let number = self.records;
        self.rows.insert(key, RowSlot { number, checksum });
        self.samples.extend(key.sample_part());
        self.records += 1;
    }

    pub(crate) fn get(&self, key: &RowKey) -> Option<RowSlot> {
        self.rows.get(key).copied()
    }

    /// Returns true if there is a row for the sample of `key`, for this or another content.
    pub(crate) fn has_sample(&self, key: &RowKey) -> bool {
        key.sample_part().is_some_and(|part| self.samples.contains(&part))
    }

    /// Removes the row in `slot` from the index, unless the row has been written again since.
    pub(crate) fn forget(&mut self, key: &RowKey, slot: RowSlot) {
        if self.get(key) == Some(slot) {
            self.rows.remove(key);
        }
    }

    /// Returns the number of records, including those of forgotten or replaced rows.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }
}
