//! Rows of a store on disk and in the write queue.

use crate::RowKey;
use crate::contents::ContentHashes;
use crate::index::{RowIndex, RowSlot};
use crate::layout::RowLayout;
use crate::space::Evicted;
use frostline_tensor::Tensor;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Rows of a store, shared by readers and the writer.
pub(crate) struct StoreRows {
    pub(crate) contents: ContentHashes,
    pub(crate) layout: RowLayout,
    pub(crate) shape: Vec<usize>,
    pub(crate) values: usize,
    pub(crate) row_bytes: usize,
    pub(crate) rows: File,
    pub(crate) index: File,
    pub(crate) state: Mutex<StoreState>,
}

#[derive(Default)]
pub(crate) struct StoreState {
    pub(crate) index: RowIndex,
    pub(crate) pending: QueuedRows,
    /// Rows with a wrong checksum since the last [`Store::take_warnings`](crate::Store::take_warnings).
    pub(crate) broken: u64,
    /// Number of rows not cached in time since the last [`Store::take_warnings`](crate::Store::take_warnings).
    pub(crate) passed_over: u64,
    /// Stores that were evicted to make room. Reset by [`Store::take_warnings`](crate::Store::take_warnings).
    pub(crate) evicted: Evicted,
}

impl StoreState {
    pub(crate) fn locate(&self, key: &RowKey) -> Option<RowLocation> {
        match self.pending.rows.get(key) {
            Some((rows, row)) => Some(RowLocation::Memory(Arc::clone(rows), *row)),
            None => self.index.get(key).map(RowLocation::Disk),
        }
    }
}

/// Location of a row.
pub(crate) enum RowLocation {
    Disk(RowSlot),
    Memory(Arc<Tensor>, usize),
}

/// Queued rows.
#[derive(Default)]
pub(crate) struct QueuedRows {
    pub(crate) rows: HashMap<RowKey, (Arc<Tensor>, usize)>,
    pub(crate) bytes: u64,
}

impl StoreRows {
    /// Reads a row's bytes from disk and verifies the checksum.
    pub(crate) fn read_bytes(&self, key: &RowKey, slot: RowSlot, into: &mut [u8]) -> Result<(), ()> {
        let at = slot.number * self.row_bytes as u64;
        self.rows.read_exact_at(into, at).map_err(drop)?;
        (key.checksum(into) == slot.checksum).then_some(()).ok_or(())
    }

    pub(crate) fn read(&self, key: &RowKey, place: RowLocation, into: &mut [f32]) -> bool {
        match place {
            RowLocation::Memory(rows, row) => self.row_of(&rows, row).is_some_and(|row| {
                into.copy_from_slice(row);
                true
            }),
            RowLocation::Disk(slot) => {
                let read = self.layout.read(into, |bytes| self.read_bytes(key, slot, bytes));
                if read.is_err() {
                    let mut state = self.state.lock();
                    state.index.forget(key, slot);
                    state.broken += 1;
                }
                read.is_ok()
            }
        }
    }

    /// Returns the values of one row.
    pub(crate) fn row_of<'a>(&self, rows: &'a Tensor, row: usize) -> Option<&'a [f32]> {
        rows.as_f32()?.get(row * self.values..(row + 1) * self.values)
    }

    /// Appends a row's bytes in the format used on disk.
    pub(crate) fn write_row(&self, rows: &Tensor, row: usize, bytes: &mut Vec<u8>) {
        if let Some(values) = self.row_of(rows, row) {
            self.layout.write(values, bytes);
        }
    }
}
