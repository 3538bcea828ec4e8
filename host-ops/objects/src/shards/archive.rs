//! Reader for the headers of a tar archive that arrives in pieces.
//!
//! Supports POSIX.1-2024 `pax` (ustar headers, extended headers) and GNU's long names. Archives are
//! untrusted. Numbers are checked before use, memory is bounded, and every step consumes at least one byte to
//! guarantee termination.

use crate::ObjectError;
use bytes::{Buf, Bytes};
use frostline_tensor::StandIn;
use futures::{Stream, StreamExt};
use std::mem;
use tar::{EntryType, Header};

/// Block size in bytes.
const BLOCK: u64 = 512;

/// Maximum size in bytes of a name in an extended header or a GNU name. Keys are limited to 1,024 bytes, so
/// longer names are left out anyway. Other values of extended headers, such as attributes, have any size.
const LONGEST_NAME: u64 = 64 * 1024;

/// Maximum size in bytes of a keyword in an extended header. Longer ones are not needed.
const LONGEST_KEYWORD: usize = 64;

/// Error while reading an archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArchiveError {
    #[error(transparent)]
    Read(ObjectError),
    #[error("it is {0}")]
    StandIn(StandIn),
    #[error("not a tar archive, or damaged at byte {at}")]
    Header { at: u64 },
    #[error("the archive ends in the middle of a file at byte {at}")]
    CutOff { at: u64 },
    #[error("name of {size} bytes at byte {at} exceeds the limit of {LONGEST_NAME}; rename the file")]
    Name { at: u64, size: u64 },
    #[error("unsupported sparse file at byte {at}; pack the archive without --sparse")]
    Sparse { at: u64 },
    #[error("names and labels use more than {limit} bytes; pack fewer samples into a shard")]
    TooMany { limit: usize },
}

/// A regular file in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Name as written in the archive.
    pub(crate) name: Vec<u8>,
    /// Byte offset of the content in the archive.
    pub(crate) offset: u64,
    /// Size of the content in bytes.
    pub(crate) size: u64,
}

/// Reads an archive from a stream of pieces, which can have any size.
pub(crate) struct ArchiveReader<S> {
    pieces: S,
    /// Rest of the last piece.
    piece: Bytes,
    /// Number of consumed bytes.
    position: u64,
    /// Bytes before the next header.
    left: u64,
    /// Name of the next file, if a previous header contains it.
    name: Option<Vec<u8>>,
    /// Size of the next file, if an extended header contains it.
    size: Option<u64>,
}

impl<S: Stream<Item = Result<Bytes, ObjectError>> + Unpin> ArchiveReader<S> {
    pub(crate) fn new(pieces: S) -> Self {
        Self {
            pieces,
            piece: Bytes::new(),
            position: 0,
            left: 0,
            name: None,
            size: None,
        }
    }

    /// Returns the next file, or `None` at the end of the archive. Some programs omit the two empty blocks at
    /// the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Member>, ArchiveError> {
        loop {
            let left = mem::take(&mut self.left);
            self.skip(left).await?;
            if !self.fill().await? {
                return Ok(None);
            }
            let at = self.position;
            if at == 0
                && let Some(stand_in) = StandIn::detect(&self.piece)
            {
                return Err(ArchiveError::StandIn(stand_in));
            }
            let block = self.read(BLOCK).await?;
            if block.iter().all(|&byte| byte == 0) {
                return Ok(None);
            }
            let header = Header::from_byte_slice(&block);
            if header.cksum().ok() != Some(checksum(&block)) {
                return Err(ArchiveError::Header { at });
            }
            let size = header.entry_size().map_err(|_| ArchiveError::Header { at })?;
            match header.entry_type() {
                EntryType::XHeader => {
                    self.left = self.padded(size, at)? - size;
                    self.records(size).await?;
                }
                EntryType::GNULongName if size > LONGEST_NAME => {
                    return Err(ArchiveError::Name { at, size });
                }
                EntryType::GNULongName => {
                    self.left = self.padded(size, at)? - size;
                    let mut name = self.read(size).await?;
                    name.truncate(name.iter().position(|&byte| byte == 0).unwrap_or(name.len()));
                    self.name = Some(name);
                }
                // These headers are not files, so the values of an extended header apply to the next one. Values in
                // global headers are ignored.
                EntryType::XGlobalHeader | EntryType::GNULongLink => self.left = self.padded(size, at)?,
                EntryType::GNUSparse => return Err(ArchiveError::Sparse { at }),
                kind => {
                    let name = self.name.take();
                    let size = self.size.take().unwrap_or(size);
                    self.left = self.padded(size, at)?;
                    if kind.is_file() || kind.is_contiguous() {
                        return Ok(Some(Member {
                            name: name.unwrap_or_else(|| header.path_bytes().into_owned()),
                            offset: self.position,
                            size,
                        }));
                    }
                }
            }
        }
    }

    /// Returns the content of the last file, which has `size` bytes.
    pub(crate) async fn content(&mut self, size: u64) -> Result<Vec<u8>, ArchiveError> {
        self.left = self.left.saturating_sub(size);
        self.read(size).await
    }

    /// Reads the records of an extended header of `size` bytes. Only needed values are collected, so the header
    /// can have any size.
    async fn records(&mut self, size: u64) -> Result<(), ArchiveError> {
        let end = self.position + size;
        while self.position < end {
            self.record(end).await?;
        }
        Ok(())
    }

    /// Reads a record, `<length> <keyword>=<value>\n`, which must end within the header.
    async fn record(&mut self, end: u64) -> Result<(), ArchiveError> {
        let at = self.position;
        let mut digits = Vec::new();
        loop {
            match self.byte().await? {
                b' ' => break,
                // A length of 64 bits has up to 20 digits.
                digit if digit.is_ascii_digit() && digits.len() < 20 => digits.push(digit),
                _ => return Err(ArchiveError::Header { at }),
            }
        }
        let most = end.checked_sub(self.position);
        let left = parsed(&digits).and_then(|length| length.checked_sub(self.position - at));
        let left = left.filter(|left| most.is_some_and(|most| *left <= most));
        let mut left = left.ok_or(ArchiveError::Header { at })?;
        let mut keyword = Vec::new();
        loop {
            // The value ends with a line break.
            left = left
                .checked_sub(1)
                .filter(|left| *left > 0)
                .ok_or(ArchiveError::Header { at })?;
            match self.byte().await? {
                b'=' => break,
                byte if keyword.len() <= LONGEST_KEYWORD => keyword.push(byte),
                _ => {}
            }
        }
        match keyword.as_slice() {
            b"path" | b"size" if left > LONGEST_NAME => return Err(ArchiveError::Name { at, size: left }),
            b"path" => self.name = Some(self.read(left - 1).await?),
            b"size" => {
                let size = parsed(&self.read(left - 1).await?);
                self.size = Some(size.ok_or(ArchiveError::Header { at })?);
            }
            sparse if sparse.starts_with(b"GNU.sparse.") => return Err(ArchiveError::Sparse { at }),
            _ => self.skip(left - 1).await?,
        }
        match self.byte().await? {
            b'\n' => Ok(()),
            _ => Err(ArchiveError::Header { at }),
        }
    }

    /// Returns the size of content of `size` bytes and its padding. Fails if the end of the content after the header
    /// `at` does not fit into 63 bits.
    fn padded(&self, size: u64, at: u64) -> Result<u64, ArchiveError> {
        let end = self.position.checked_add(size);
        end.filter(|end| *end <= i64::MAX as u64)
            .and_then(|_| size.checked_next_multiple_of(BLOCK))
            .ok_or(ArchiveError::Header { at })
    }

    async fn byte(&mut self) -> Result<u8, ArchiveError> {
        Ok(self.take(1).await?.get_u8())
    }

    async fn skip(&mut self, mut bytes: u64) -> Result<(), ArchiveError> {
        while bytes > 0 {
            bytes -= self.take(bytes).await?.len() as u64;
        }
        Ok(())
    }

    async fn read(&mut self, size: u64) -> Result<Vec<u8>, ArchiveError> {
        let mut bytes = Vec::new();
        while size > bytes.len() as u64 {
            let left = size - bytes.len() as u64;
            bytes.extend_from_slice(&self.take(left).await?);
        }
        Ok(bytes)
    }

    /// Returns between 1 and `most` bytes.
    async fn take(&mut self, most: u64) -> Result<Bytes, ArchiveError> {
        if !self.fill().await? {
            return Err(ArchiveError::CutOff { at: self.position });
        }
        let count = usize::try_from(most).map_or(self.piece.len(), |most| most.min(self.piece.len()));
        self.position += count as u64;
        Ok(self.piece.split_to(count))
    }

    /// Waits for the next piece if the last one was consumed. Returns false at the end of the stream.
    async fn fill(&mut self) -> Result<bool, ArchiveError> {
        while self.piece.is_empty() {
            match self.pieces.next().await {
                Some(piece) => self.piece = piece.map_err(ArchiveError::Read)?,
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

fn parsed(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns the sum of all bytes, counting the checksum field as spaces.
fn checksum(block: &[u8]) -> u32 {
    let field = 148..156;
    let bytes = block.iter().enumerate();
    bytes
        .map(|(at, &byte)| u32::from(if field.contains(&at) { b' ' } else { byte }))
        .sum()
}
