//! Segments: rows in an object store, shared between machines. Segments are named by the SHA-256 of the
//! contents.

use crate::RowKey;
use crate::index::{RECORD, append};
use sha2::{Digest, Sha256};
use twox_hash::XxHash3_64;

/// Magic bytes at the start of a segment.
const MAGIC: [u8; 8] = *b"FROSTROW";

/// Version of the format. Segments of other versions are ignored.
const VERSION: u32 = 1;

/// Header size in bytes. All fields are little-endian: magic (8), version (4), number of rows (4), bytes per
/// row (8), subject (16), and the XXH3 checksum of header and records (8). The records (24 bytes per row, as
/// in the local index) and the rows follow.
const HEADER: usize = 48;

/// Size of the checksum in the header in bytes.
const CHECKSUM: usize = 8;

/// Maximum size of records and rows in a segment in bytes, unless a single row is larger. Requests to an
/// object store time out after 30 seconds, which is enough for this size at 5 Mbit/s. Half the size would
/// double the number of requests.
const LARGEST: usize = 16 << 20;

/// Suffix of a segment's name.
const ENDING: &str = ".rows";

/// Reason for ignoring a segment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokenSegment {
    /// The name does not contain a hash.
    #[error("the name is not a SHA-256")]
    Name,
    /// The length does not correspond to a number of rows.
    #[error("invalid length of {bytes} bytes")]
    Length {
        /// Length in bytes.
        bytes: u64,
    },
    /// The format or the version is unknown.
    #[error("unknown segment format or version")]
    Form,
    /// The rows belong to another store.
    #[error("the rows have another subject, size or count")]
    Foreign,
    /// The bytes do not match the name or the checksum.
    #[error("the contents do not match the checksum")]
    Hash,
}

/// Subject and row size of a store's segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentForm {
    pub(crate) subject: [u8; 16],
    pub(crate) row_bytes: usize,
}

/// Rows in the format shared between machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    form: SegmentForm,
    bytes: Vec<u8>,
    rows: usize,
}

impl SegmentForm {
    /// Creates the form of segments for the store with the folder `name`.
    pub(crate) fn new(name: &str, row_bytes: usize) -> Self {
        let mut subject = [0; 16];
        // Store names consist of 32 hex digits.
        let _ = hex::decode_to_slice(name, &mut subject);
        Self { subject, row_bytes }
    }

    /// Returns the maximum number of rows per segment. This is 1 if a single row exceeds the usual size.
    pub fn max_rows(&self) -> usize {
        (LARGEST / (self.row_bytes + RECORD)).max(1)
    }

    /// Returns the number of rows in a segment of `size` bytes.
    ///
    /// # Errors
    /// Returns [`BrokenSegment::Name`] or [`BrokenSegment::Length`] if the name or the size is invalid.
    pub fn rows(&self, name: &str, size: u64) -> Result<usize, BrokenSegment> {
        hash_in(name).ok_or(BrokenSegment::Name)?;
        let width = (self.row_bytes + RECORD) as u64;
        let length = BrokenSegment::Length { bytes: size };
        let body = size.checked_sub(HEADER as u64).ok_or(length.clone())?;
        let rows = body / width;
        if body % width != 0 || rows == 0 || rows > self.max_rows() as u64 {
            return Err(length);
        }
        Ok(rows as usize)
    }

    /// Returns the size of a segment's header and records in bytes. These bytes contain the keys of all rows.
    pub fn head_bytes(&self, rows: usize) -> usize {
        HEADER + rows * RECORD
    }

    /// Returns the keys of the rows in the segment that starts with `head`.
    ///
    /// # Errors
    /// Returns a [`BrokenSegment`] if `head` is damaged, or does not describe `rows` rows of this form.
    pub fn keys(&self, head: &[u8], rows: usize) -> Result<Vec<RowKey>, BrokenSegment> {
        let records = records(head, rows)?;
        let (told, expected) = (head.get(..HEADER - CHECKSUM), self.header(rows));
        if told.and_then(|told| told.get(..12)) != expected.get(..12) {
            return Err(BrokenSegment::Form);
        }
        if told != Some(&expected) {
            return Err(BrokenSegment::Foreign);
        }
        let checksum = checksum(&expected, records).to_le_bytes();
        if head.get(HEADER - CHECKSUM..HEADER) != Some(&checksum) {
            return Err(BrokenSegment::Hash);
        }
        Ok(parsed(records).map(|(key, _)| key).collect())
    }

    /// Verifies the segment `name` with the given contents.
    ///
    /// # Errors
    /// Returns a [`BrokenSegment`] if the name, the length, the header or the SHA-256 is wrong.
    pub fn check(&self, name: &str, bytes: Vec<u8>) -> Result<Segment, BrokenSegment> {
        let rows = self.rows(name, bytes.len() as u64)?;
        let head = bytes.get(..self.head_bytes(rows)).unwrap_or_default();
        self.keys(head, rows)?;
        if hash_in(name) != Some(hex::encode(Sha256::digest(&bytes)).as_str()) {
            return Err(BrokenSegment::Hash);
        }
        Ok(Segment {
            form: *self,
            bytes,
            rows,
        })
    }

    /// Builds a segment from `records` and their `rows`. Returns `None` if there are no records.
    pub(crate) fn build(&self, records: &[(RowKey, u64)], rows: &[u8]) -> Option<Segment> {
        let count = records.len();
        let mut recorded = Vec::with_capacity(count * RECORD);
        for (key, checksum) in records {
            append(&mut recorded, key, *checksum);
        }
        let header = self.header(count);
        let mut bytes = Vec::with_capacity(HEADER + recorded.len() + rows.len());
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(&checksum(&header, &recorded).to_le_bytes());
        bytes.extend_from_slice(&recorded);
        bytes.extend_from_slice(rows);
        (count > 0).then_some(Segment {
            form: *self,
            bytes,
            rows: count,
        })
    }

    /// Returns the header for this number of rows, without the checksum.
    fn header(&self, rows: usize) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEADER);
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&(rows as u32).to_le_bytes());
        header.extend_from_slice(&(self.row_bytes as u64).to_le_bytes());
        header.extend_from_slice(&self.subject);
        header
    }
}

impl Segment {
    /// Returns the name of the segment, which is the SHA-256 of the contents followed by a suffix.
    pub fn name(&self) -> String {
        hex::encode(Sha256::digest(&self.bytes)) + ENDING
    }

    /// Returns the contents of the segment.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn form(&self) -> SegmentForm {
        self.form
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the keys of the rows.
    pub fn keys(&self) -> Vec<RowKey> {
        parsed(records(&self.bytes, self.rows).unwrap_or_default())
            .map(|(key, _)| key)
            .collect()
    }

    /// Returns the rows that match their checksum and are usable by any job.
    pub(crate) fn valid_rows(&self) -> impl Iterator<Item = (RowKey, &[u8])> {
        let rows = self.bytes.get(self.form.head_bytes(self.rows)..);
        let rows = rows.unwrap_or_default().chunks_exact(self.form.row_bytes);
        parsed(records(&self.bytes, self.rows).unwrap_or_default())
            .zip(rows)
            .filter(|((key, checksum), row)| key.is_shareable() && key.checksum(row) == *checksum)
            .map(|((key, _), row)| (key, row))
    }
}

/// Returns the hash in a segment's name. Returns `None` if the name is invalid.
fn hash_in(name: &str) -> Option<&str> {
    let hash = name.strip_suffix(ENDING)?;
    let digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    (hash.len() == 64 && hash.bytes().all(digit)).then_some(hash)
}

/// Returns the records at the start of a segment with this number of rows.
fn records(head: &[u8], rows: usize) -> Result<&[u8], BrokenSegment> {
    let length = BrokenSegment::Length {
        bytes: head.len() as u64,
    };
    head.get(HEADER..HEADER + rows * RECORD).ok_or(length)
}

fn parsed(records: &[u8]) -> impl Iterator<Item = (RowKey, u64)> {
    records.as_chunks::<RECORD>().0.iter().filter_map(|record| {
        let (key, checksum) = record.split_at(RowKey::BYTES);
        let checksum = u64::from_le_bytes(checksum.try_into().ok()?);
        Some((RowKey(key.try_into().ok()?), checksum))
    })
}

fn checksum(header: &[u8], records: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(header), records)
}
