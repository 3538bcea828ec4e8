//! Incremental reader for the headers of a tar archive.
//!
//! Supports POSIX.1-2024 `pax` (ustar headers, extended headers) and GNU's long names. Archives are
//! untrusted. Numbers are checked before use, memory is bounded, and every step consumes at least one byte to
//! guarantee termination.

use frostline_tensor::StandIn;
use std::mem;
use tar::{EntryType, Header};

/// Block size in bytes.
const BLOCK: usize = 512;

/// Maximum size in bytes for extended headers and GNU names. Real ones have a few hundred bytes, or some
/// thousand with extended attributes.
const LONGEST_EXTENSION: u64 = 64 * 1024;

/// Error while reading an archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArchiveError {
    #[error("it is {0}")]
    StandIn(#[from] StandIn),
    #[error("not a tar archive, or damaged at byte {at}")]
    Header { at: u64 },
    #[error("the archive ends in the middle of a file at byte {at}")]
    CutOff { at: u64 },
    #[error("an extended header at byte {at} has {size} bytes, over the limit of {LONGEST_EXTENSION}")]
    Extension { at: u64, size: u64 },
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

/// Receives the files of an archive.
pub(crate) trait Visitor {
    /// Called at the beginning of a file. If this returns a limit, content of up to that many bytes is
    /// collected for [`Visitor::content`].
    fn member(&mut self, member: &Member) -> Result<Option<u64>, ArchiveError>;

    /// Called with the content of a file within the limit.
    fn content(&mut self, member: &Member, content: &[u8]) -> Result<(), ArchiveError>;
}

/// Parser state of an archive.
#[derive(Debug)]
pub(crate) struct ArchiveReader {
    position: u64,
    state: State,
    /// Values from extended headers for the next file.
    next: Overrides,
}

#[derive(Debug, Default)]
struct Overrides {
    name: Option<Vec<u8>>,
    size: Option<u64>,
}

#[derive(Debug)]
enum State {
    /// Inside a header, with the bytes received so far.
    Header(Vec<u8>),
    /// Content is being collected.
    Kept(CollectedEntry),
    /// Number of bytes to skip before the next header.
    Skipped(u64),
    /// The end of the archive.
    End,
}

#[derive(Debug)]
struct CollectedEntry {
    what: CollectedKind,
    size: u64,
    bytes: Vec<u8>,
}

#[derive(Debug)]
enum CollectedKind {
    Content(Member),
    LongName,
    Extended,
}

impl ArchiveReader {
    pub(crate) fn new() -> Self {
        Self {
            position: 0,
            state: State::Header(Vec::new()),
            next: Overrides::default(),
        }
    }

    /// Returns true if no byte was read.
    pub(crate) fn is_at_start(&self) -> bool {
        self.position == 0
    }

    /// Reads the next bytes of the archive.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], visitor: &mut impl Visitor) -> Result<(), ArchiveError> {
        while !bytes.is_empty() && !matches!(self.state, State::End) {
            let taken = self.step(bytes, visitor)?;
            self.position = self.position.saturating_add(taken as u64);
            bytes = bytes.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    /// Checks that the archive is complete. Some programs omit the two empty blocks at the end.
    pub(crate) fn finish(&self) -> Result<(), ArchiveError> {
        match &self.state {
            State::End => Ok(()),
            State::Header(begun) if begun.is_empty() => Ok(()),
            _ => Err(ArchiveError::CutOff { at: self.position }),
        }
    }

    /// Consumes the beginning of `bytes`, which must not be empty. Returns the consumed length.
    fn step(&mut self, bytes: &[u8], visitor: &mut impl Visitor) -> Result<usize, ArchiveError> {
        match &mut self.state {
            State::End => Ok(bytes.len()),
            State::Skipped(left) => {
                let taken = at_most(*left, bytes.len());
                *left -= taken as u64;
                if *left == 0 {
                    self.state = State::Header(Vec::with_capacity(BLOCK));
                }
                Ok(taken)
            }
            State::Header(begun) => {
                let taken = (BLOCK - begun.len()).min(bytes.len());
                begun.extend_from_slice(bytes.get(..taken).unwrap_or_default());
                if begun.len() == BLOCK {
                    let block = mem::take(begun);
                    self.state = self.header(&block, self.position + taken as u64, visitor)?;
                }
                Ok(taken)
            }
            State::Kept(kept) => {
                let left = kept.size - kept.bytes.len() as u64;
                let taken = at_most(left, bytes.len());
                kept.bytes
                    .extend_from_slice(bytes.get(..taken).unwrap_or_default());
                if taken as u64 == left {
                    let padding = padded(kept.size) - kept.size;
                    let kept = mem::replace(&mut self.state, after(padding));
                    if let State::Kept(kept) = kept {
                        self.finish_member(kept, visitor)?;
                    }
                }
                Ok(taken)
            }
        }
    }

    /// Parses the header `block`, which ends at offset `end`, and returns the next state.
    fn header(&mut self, block: &[u8], end: u64, visitor: &mut impl Visitor) -> Result<State, ArchiveError> {
        if block.iter().all(|&byte| byte == 0) {
            return Ok(State::End);
        }
        let at = end - BLOCK as u64;
        let damaged = |_| ArchiveError::Header { at };
        let header = Header::from_byte_slice(block);
        if header.cksum().map_err(damaged)? != checksum(block) {
            return Err(ArchiveError::Header { at });
        }
        let size = header.entry_size().map_err(damaged)?;
        match header.entry_type() {
            EntryType::XHeader | EntryType::GNULongName => {
                if size > LONGEST_EXTENSION {
                    return Err(ArchiveError::Extension { at, size });
                }
                let what = if header.entry_type() == EntryType::XHeader {
                    CollectedKind::Extended
                } else {
                    CollectedKind::LongName
                };
                self.keep(what, size, visitor)
            }
            EntryType::GNUSparse => Err(ArchiveError::Sparse { at }),
            kind => {
                let overrides = mem::take(&mut self.next);
                let size = overrides.size.unwrap_or(size);
                // The content must end at an offset that fits into 63 bits.
                if end.checked_add(size).is_none_or(|end| end > i64::MAX as u64) {
                    return Err(ArchiveError::Header { at });
                }
                if !kind.is_file() && !kind.is_contiguous() {
                    // These headers are not files, so the overrides apply to the next one. Values in global
                    // headers are ignored.
                    if kind == EntryType::XGlobalHeader || kind == EntryType::GNULongLink {
                        self.next = overrides;
                    }
                    return Ok(after(padded(size)));
                }
                let member = Member {
                    name: overrides.name.unwrap_or_else(|| header.path_bytes().into_owned()),
                    offset: end,
                    size,
                };
                match visitor.member(&member)? {
                    Some(most) if size <= most => self.keep(CollectedKind::Content(member), size, visitor),
                    _ => Ok(after(padded(size))),
                }
            }
        }
    }

    fn keep(
        &mut self,
        what: CollectedKind,
        size: u64,
        visitor: &mut impl Visitor,
    ) -> Result<State, ArchiveError> {
        let kept = CollectedEntry {
            what,
            size,
            bytes: Vec::new(),
        };
        if size > 0 {
            return Ok(State::Kept(kept));
        }
        self.finish_member(kept, visitor)?;
        Ok(after(0))
    }

    fn finish_member(
        &mut self,
        kept: CollectedEntry,
        visitor: &mut impl Visitor,
    ) -> Result<(), ArchiveError> {
        match kept.what {
            CollectedKind::Content(member) => visitor.content(&member, &kept.bytes)?,
            CollectedKind::LongName => {
                let end = kept.bytes.iter().position(|&byte| byte == 0);
                let end = end.unwrap_or(kept.bytes.len());
                self.next.name = kept.bytes.get(..end).map(<[u8]>::to_vec);
            }
            CollectedKind::Extended => self.extended(&kept.bytes)?,
        }
        Ok(())
    }

    /// Parses records of the form `<length> <keyword>=<value>\n`.
    fn extended(&mut self, mut bytes: &[u8]) -> Result<(), ArchiveError> {
        let at = self.position;
        while !bytes.is_empty() {
            let (keyword, value, rest) = record(bytes).ok_or(ArchiveError::Header { at })?;
            match keyword {
                b"path" => self.next.name = Some(value.to_vec()),
                b"size" => {
                    let size = std::str::from_utf8(value)
                        .ok()
                        .and_then(|value| value.parse().ok());
                    self.next.size = Some(size.ok_or(ArchiveError::Header { at })?);
                }
                _ if keyword.starts_with(b"GNU.sparse.") => return Err(ArchiveError::Sparse { at }),
                _ => {}
            }
            bytes = rest;
        }
        Ok(())
    }
}

fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().position(|&byte| byte == b' ')?;
    let length: usize = std::str::from_utf8(bytes.get(..space)?).ok()?.parse().ok()?;
    let (line, rest) = bytes.split_at_checked(length)?;
    let line = line.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = line.iter().position(|&byte| byte == b'=')?;
    Some((line.get(..equals)?, line.get(equals + 1..)?, rest))
}

fn after(bytes: u64) -> State {
    if bytes == 0 {
        State::Header(Vec::with_capacity(BLOCK))
    } else {
        State::Skipped(bytes)
    }
}

fn at_most(left: u64, there: usize) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(there)
}

/// Rounds `size` up to a multiple of the block size. Supports sizes up to 2^63.
fn padded(size: u64) -> u64 {
    size.div_ceil(BLOCK as u64).saturating_mul(BLOCK as u64)
}

/// Returns the sum of all bytes, counting the checksum field as spaces.
fn checksum(block: &[u8]) -> u32 {
    let field = 148..156;
    let bytes = block.iter().enumerate();
    bytes
        .map(|(at, &byte)| u32::from(if field.contains(&at) { b' ' } else { byte }))
        .sum()
}
