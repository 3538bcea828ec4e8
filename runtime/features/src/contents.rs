//! Hashes of the contents of files. A program can replace a file and keep its version (size and modification
//! time), but not the time of the last change (ctime). The hash is therefore recorded for this time, and a file with
//! another time is hashed again before its rows are used.

use crate::records::{RECORD, append, read_after};
use crate::row::FileState;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Hashes by file state, shared by processes through a file. A damaged record leads to a hash without rows.
pub(crate) struct ContentHashes {
    file: File,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    hashes: HashMap<FileState, u64>,
    /// Number of records read so far.
    records: u64,
}

impl ContentHashes {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).append(true).create(true).open(path)?;
        let length = file.metadata()?.len();
        // An interrupted write would shift all later records.
        let torn = length % RECORD as u64;
        if torn > 0 {
            file.set_len(length - torn)?;
        }
        let contents = Self {
            file,
            known: Mutex::default(),
        };
        contents.refresh()?;
        Ok(contents)
    }

    /// Reads the records that other jobs appended.
    pub(crate) fn refresh(&self) -> io::Result<()> {
        let mut known = self.known.lock();
        let records = read_after(&self.file, known.records)?;
        known.records += records.len() as u64;
        let hashes = records.into_iter().map(|(state, hash)| (FileState(state), hash));
        known.hashes.extend(hashes);
        Ok(())
    }

    pub(crate) fn get(&self, state: &FileState) -> Option<u64> {
        self.known.lock().hashes.get(state).copied()
    }

    /// Records hashes. If the disk fails, they are only known to this process.
    pub(crate) fn add(&self, hashes: &[(FileState, u64)]) {
        let mut bytes = Vec::with_capacity(hashes.len() * RECORD);
        let mut known = self.known.lock();
        for (state, hash) in hashes {
            if known.hashes.insert(*state, *hash) != Some(*hash) {
                append(&mut bytes, &state.0, *hash);
            }
        }
        // A single write, so that records of concurrent jobs are not mixed.
        let _ = (&self.file).write_all(&bytes);
    }
}
