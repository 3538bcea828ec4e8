//! Segments: rows of a store as they lie in an object store for other machines, each under the SHA-256 of its bytes.

use crate::RowKey;
use crate::index::{RECORD, append};
use sha2::{Digest, Sha256};
use twox_hash::XxHash3_64;

/// What a segment begins with.
const MAGIC: [u8; 8] = *b"FROSTROW";

/// The form of segments. Those of other forms are passed over.
const VERSION: u32 = 1;

/// Bytes of a header, little-endian: magic (8), version (4), rows (4), bytes of a row (8), subject (16), and the XXH3 of header and records (8). Records as
/// in a local index (24 a row) and the rows follow.
const HEADER: usize = 48;

/// Of these the checksum's.
const CHECKSUM: usize = 8;

/// Bytes of records and rows in a segment, but for one row that is larger by itself. A request of an object store has 30 seconds, which a link of 5 Mbit/s
/// keeps with this; half of it would be twice the requests.
const LARGEST: usize = 16 << 20;

/// What a segment's name ends with.
const ENDING: &str = ".rows";

/// Why a segment is passed over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokenSegment {
    /// Its name is not a hash.
    #[error("the name is not a SHA-256")]
    Name,
    /// It has so many bytes.
    #[error("the length of {bytes} bytes does not match the header")]
    Length {
        /// Of the object.
        bytes: u64,
    },
    /// It is nothing known.
    #[error("not a segment, or of another version")]
    Form,
    /// Its rows are none of the store's.
    #[error("its rows are others: of another subject or another size")]
    Foreign,
    /// Bytes changed since it was named.
    #[error("its bytes are not those that were written")]
    Hash,
}

/// What the segments of one store are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentForm {
    pub(crate) subject: [u8; 16],
    pub(crate) row_bytes: usize,
}

/// Rows as they travel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    form: SegmentForm,
    bytes: Vec<u8>,
    rows: usize,
}

impl SegmentForm {
    /// Of a store whose folder has this `name`.
    pub(crate) fn new(name: &str, row_bytes: usize) -> Self {
        let mut subject = [0; 16];
        // A store is named by 16 bytes.
        let _ = hex::decode_to_slice(name, &mut subject);
        Self { subject, row_bytes }
    }

    /// The most rows of a segment.
    pub fn most_rows(&self) -> usize {
        (LARGEST / (self.row_bytes + RECORD)).max(1)
    }

    /// Rows of a segment of `size` bytes.
    ///
    /// # Errors
    /// [`BrokenSegment::Name`] and [`BrokenSegment::Length`] for what is none by its name and size.
    pub fn rows(&self, name: &str, size: u64) -> Result<usize, BrokenSegment> {
        hash_in(name).ok_or(BrokenSegment::Name)?;
        let width = (self.row_bytes + RECORD) as u64;
        let length = BrokenSegment::Length { bytes: size };
        let body = size.checked_sub(HEADER as u64).ok_or(length.clone())?;
        let rows = body / width;
        if body % width != 0 || rows == 0 || rows > self.most_rows() as u64 {
            return Err(length);
        }
        Ok(rows as usize)
    }

    /// Bytes that a segment of so many rows begins with, and which say whose they are.
    pub fn head_bytes(&self, rows: usize) -> usize {
        HEADER + rows * RECORD
    }

    /// Whose rows a segment with this `head` has.
    ///
    /// # Errors
    /// [`BrokenSegment`] for one that is not of so many rows of this form, or not as it was written.
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

    /// The segment `name`, whose bytes these are.
    ///
    /// # Errors
    /// [`BrokenSegment`]: above all where the bytes are not those it is named by.
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

    /// A segment of `rows`, whose `records` are given; none of none.
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

    /// The header of so many rows, without its checksum.
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
    /// The SHA-256 of its bytes, and an ending.
    pub fn name(&self) -> String {
        hex::encode(Sha256::digest(&self.bytes)) + ENDING
    }

    /// As it lies in an object store.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// What it is like.
    pub(crate) fn form(&self) -> SegmentForm {
        self.form
    }

    /// Rows in it.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whose rows it has.
    pub fn keys(&self) -> Vec<RowKey> {
        parsed(records(&self.bytes, self.rows).unwrap_or_default())
            .map(|(key, _)| key)
            .collect()
    }

    /// The rows whose bytes are what was written, and which any job may use.
    pub(crate) fn sound(&self) -> impl Iterator<Item = (RowKey, &[u8])> {
        let rows = self.bytes.get(self.form.head_bytes(self.rows)..);
        let rows = rows.unwrap_or_default().chunks_exact(self.form.row_bytes);
        parsed(records(&self.bytes, self.rows).unwrap_or_default())
            .zip(rows)
            .filter(|((key, checksum), row)| key.travels() && key.checksum(row) == *checksum)
            .map(|((key, _), row)| (key, row))
    }
}

/// The hash that a segment's name is.
fn hash_in(name: &str) -> Option<&str> {
    let hash = name.strip_suffix(ENDING)?;
    let digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    (hash.len() == 64 && hash.bytes().all(digit)).then_some(hash)
}

/// The records of so many rows in a segment or its head.
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
