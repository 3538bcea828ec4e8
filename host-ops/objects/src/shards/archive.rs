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

/// Maximum size in bytes of a name in an extended header or a GNU name. Keys are limited to 1,024 bytes, so
/// longer names are left out anyway. Other values of extended headers, such as attributes, have any size.
const LONGEST_NAME: u64 = 64 * 1024;

/// Maximum size in bytes of a keyword in an extended header. Longer ones are not needed.
const LONGEST_KEYWORD: usize = 64;

/// Error while reading an archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArchiveError {
    #[error("it is {0}")]
    StandIn(#[from] StandIn),
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
    /// Inside an extended header.
    Extended(Records),
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
}

/// Parser state of an extended header. Only needed values are collected, so the header can have any size.
#[derive(Debug)]
struct Records {
    /// Size of the header in bytes.
    size: u64,
    /// Remaining bytes of the header.
    left: u64,
    record: Record,
}

/// Parser state of a record, `<length> <keyword>=<value>\n`.
#[derive(Debug)]
enum Record {
    Length {
        digits: Vec<u8>,
    },
    /// `left` is the number of bytes up to the end of the record.
    Keyword {
        keyword: Vec<u8>,
        left: u64,
    },
    /// `needed` collects the value if the keyword is needed.
    Value {
        needed: Option<(Keyword, Vec<u8>)>,
        left: u64,
    },
}

/// A keyword with a needed value.
#[derive(Debug, Clone, Copy)]
enum Keyword {
    Path,
    Size,
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
            State::Extended(records) => {
                let bytes = bytes.get(..at_most(records.left, bytes.len())).unwrap_or(bytes);
                let taken = records.feed(bytes, &mut self.next, self.position)?;
                if records.left == 0 {
                    if !records.record.is_new() {
                        return Err(ArchiveError::Header { at: self.position });
                    }
                    self.state = after(padded(records.size) - records.size);
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
        let header = Header::from_byte_slice(block);
        if header.cksum().map_err(|_| ArchiveError::Header { at })? != checksum(block) {
            return Err(ArchiveError::Header { at });
        }
        let size = header.entry_size().map_err(|_| ArchiveError::Header { at })?;
        match header.entry_type() {
            EntryType::XHeader if size > 0 => {
                checked_end(end, size).ok_or(ArchiveError::Header { at })?;
                Ok(State::Extended(Records {
                    size,
                    left: size,
                    record: Record::new(),
                }))
            }
            EntryType::GNULongName if size > LONGEST_NAME => Err(ArchiveError::Name { at, size }),
            EntryType::GNULongName => self.keep(CollectedKind::LongName, size, visitor),
            // These headers are not files, so the values of an extended header apply to the next one. Values in
            // global headers are ignored.
            EntryType::XHeader | EntryType::XGlobalHeader | EntryType::GNULongLink => {
                checked_end(end, size).ok_or(ArchiveError::Header { at })?;
                Ok(after(padded(size)))
            }
            EntryType::GNUSparse => Err(ArchiveError::Sparse { at }),
            kind => {
                let overrides = mem::take(&mut self.next);
                let size = overrides.size.unwrap_or(size);
                checked_end(end, size).ok_or(ArchiveError::Header { at })?;
                if !kind.is_file() && !kind.is_contiguous() {
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
        }
        Ok(())
    }
}

impl Records {
    /// Reads the beginning of `bytes`, which must not be empty, and applies completed records to `next`. `at` is
    /// the offset of `bytes` in the archive. Returns the consumed length.
    fn feed(&mut self, bytes: &[u8], next: &mut Overrides, at: u64) -> Result<usize, ArchiveError> {
        let taken = match &mut self.record {
            Record::Length { digits } => {
                match bytes.first() {
                    Some(b' ') => {
                        let length = parsed(digits).ok_or(ArchiveError::Header { at })?;
                        let left = length.checked_sub(digits.len() as u64 + 1);
                        // The record must end within the header.
                        let left = left
                            .filter(|left| *left < self.left)
                            .ok_or(ArchiveError::Header { at })?;
                        let keyword = Vec::new();
                        self.record = Record::Keyword { keyword, left };
                    }
                    // A length of 64 bits has up to 20 digits.
                    Some(digit) if digit.is_ascii_digit() && digits.len() < 20 => digits.push(*digit),
                    _ => return Err(ArchiveError::Header { at }),
                }
                1
            }
            Record::Keyword { keyword, left } => {
                // The value ends with a line break.
                *left = left
                    .checked_sub(1)
                    .filter(|left| *left > 0)
                    .ok_or(ArchiveError::Header { at })?;
                match bytes.first() {
                    Some(b'=') => {
                        let needed = needed(keyword, at)?.map(|keyword| (keyword, Vec::new()));
                        let left = *left;
                        self.record = Record::Value { needed, left };
                    }
                    Some(byte) if keyword.len() <= LONGEST_KEYWORD => keyword.push(*byte),
                    _ => {}
                }
                1
            }
            Record::Value { needed, left } => {
                let taken = at_most(*left, bytes.len());
                let bytes = bytes.get(..taken).unwrap_or(bytes);
                *left -= taken as u64;
                if let Some((_, value)) = needed {
                    let size = value.len() as u64 + taken as u64 + *left;
                    if size > LONGEST_NAME {
                        return Err(ArchiveError::Name { at, size });
                    }
                    value.extend_from_slice(bytes);
                }
                if *left == 0 {
                    if bytes.last() != Some(&b'\n') {
                        return Err(ArchiveError::Header { at });
                    }
                    if let Some((keyword, value)) = needed.take() {
                        next.apply(keyword, value).ok_or(ArchiveError::Header { at })?;
                    }
                    self.record = Record::new();
                }
                taken
            }
        };
        self.left -= taken as u64;
        Ok(taken)
    }
}

impl Overrides {
    /// Applies a record with its line break. Returns `None` if the value is invalid.
    fn apply(&mut self, keyword: Keyword, mut value: Vec<u8>) -> Option<()> {
        value.pop();
        match keyword {
            Keyword::Path => self.name = Some(value),
            Keyword::Size => self.size = Some(parsed(&value)?),
        }
        Some(())
    }
}

impl Record {
    fn new() -> Self {
        Self::Length { digits: Vec::new() }
    }

    /// Returns true if no byte of the record was read.
    fn is_new(&self) -> bool {
        matches!(self, Self::Length { digits } if digits.is_empty())
    }
}

/// Returns the keyword if its value is needed.
fn needed(keyword: &[u8], at: u64) -> Result<Option<Keyword>, ArchiveError> {
    match keyword {
        b"path" => Ok(Some(Keyword::Path)),
        b"size" => Ok(Some(Keyword::Size)),
        _ if keyword.starts_with(b"GNU.sparse.") => Err(ArchiveError::Sparse { at }),
        _ => Ok(None),
    }
}

fn parsed(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns the end of content of `size` bytes after `end` if the offset fits into 63 bits.
fn checked_end(end: u64, size: u64) -> Option<u64> {
    end.checked_add(size).filter(|end| *end <= i64::MAX as u64)
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
