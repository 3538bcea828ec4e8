//! A file of tensors with a checksum. Writes are atomic, and corruption is detected when the file is read.
//!
//! The format is `FROSTCKP`, the version (u32), the length of the header (u64), the header in JSON, the
//! elements of the tensors in order, and the SHA-256 of all preceding bytes. Numbers are little-endian. Every
//! version ends with this hash.

use crate::whole_file::{Create, write_to};
use frostline_tensor::{DType, Data, Shape, Tensor};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

const MAGIC: &[u8] = b"FROSTCKP";
const VERSION: u32 = 1;
/// Length of the hash in bytes.
const HASH: usize = 32;

/// Tensors with their names.
pub(super) type Tensors = Vec<(String, Tensor)>;

/// Reason a checkpoint file is rejected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("cannot read the file: {0}")]
    Read(#[from] io::Error),
    #[error("not a Frostline checkpoint")]
    Foreign,
    #[error("format version {0} is unsupported (this Frostline reads version {VERSION})")]
    Version(u32),
    #[error("checksum mismatch: the file is truncated or was modified")]
    Checksum,
    #[error("corrupt file: {0}")]
    Content(String),
}

impl FileError {
    fn content(why: impl ToString) -> Self {
        Self::Content(why.to_string())
    }
}

#[derive(Serialize, Deserialize)]
struct Header<N> {
    note: N,
    tensors: Vec<TensorEntry>,
}

#[derive(Serialize, Deserialize)]
struct TensorEntry {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
}

/// Writes `note` and `tensors` to `path` and returns the number of bytes written.
pub(super) fn write(
    path: &Path,
    create: Create,
    note: &impl Serialize,
    tensors: &[(String, Tensor)],
) -> io::Result<u64> {
    let header = serde_json::to_vec(&Header {
        note,
        tensors: tensors
            .iter()
            .map(|(name, tensor)| TensorEntry {
                name: name.clone(),
                dtype: tensor.dtype(),
                shape: tensor.shape().dims().to_vec(),
            })
            .collect(),
    })?;
    write_to(path, create, |file| {
        let mut to = Hashing {
            to: file,
            hash: Sha256::new(),
        };
        to.write_all(MAGIC)?;
        to.write_all(&VERSION.to_le_bytes())?;
        to.write_all(&(header.len() as u64).to_le_bytes())?;
        to.write_all(&header)?;
        for (_, tensor) in tensors {
            to.write_all(tensor.as_bytes())?;
        }
        let hash = to.hash.finalize();
        to.to.write_all(&hash)
    })
}

/// Reads a file written by [`write()`]. The checksum is verified before parsing. The file is in memory twice
/// during the read.
pub(super) fn read<N: DeserializeOwned>(path: &Path) -> Result<(N, Tensors), FileError> {
    parse(&fs::read(path)?)
}

fn parse<N: DeserializeOwned>(bytes: &[u8]) -> Result<(N, Tensors), FileError> {
    let (body, hash) = bytes.split_last_chunk::<HASH>().ok_or(FileError::Checksum)?;
    if Sha256::digest(body).as_slice() != hash {
        return Err(match bytes.starts_with(MAGIC) {
            true => FileError::Checksum,
            false => FileError::Foreign,
        });
    }
    let rest = body.strip_prefix(MAGIC).ok_or(FileError::Foreign)?;
    let (version, rest) = rest.split_first_chunk().ok_or(FileError::Checksum)?;
    let version = u32::from_le_bytes(*version);
    if version != VERSION {
        return Err(FileError::Version(version));
    }
    let (length, rest) = rest.split_first_chunk().ok_or(FileError::Checksum)?;
    let length = usize::try_from(u64::from_le_bytes(*length))
        .map_err(|_| FileError::content("the header length is out of range"))?;
    let header = rest
        .get(..length)
        .ok_or_else(|| FileError::content("the header is truncated"))?;
    let header: Header<N> = serde_json::from_slice(header).map_err(FileError::content)?;
    let mut rest = rest.get(length..).unwrap_or_default();
    let mut tensors = Vec::with_capacity(header.tensors.len());
    for entry in header.tensors {
        let shape = Shape::new(entry.shape);
        let bytes = shape.bytes(entry.dtype.size()).ok();
        let (own, others) = bytes
            .and_then(|bytes| rest.split_at_checked(bytes))
            .ok_or_else(|| FileError::content("a tensor is truncated"))?;
        let data = Data::from_bytes(entry.dtype, own);
        let data = data.ok_or_else(|| FileError::content("invalid tensor data"))?;
        let tensor = Tensor::new(shape, data).map_err(FileError::content)?;
        tensors.push((entry.name, tensor));
        rest = others;
    }
    match rest {
        [] => Ok((header.note, tensors)),
        _ => Err(FileError::content("trailing bytes after the tensors")),
    }
}

/// Writer that also hashes the written bytes.
struct Hashing<W> {
    to: W,
    hash: Sha256,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hash.update(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::path::PathBuf;

    fn tensors() -> Tensors {
        vec![
            (
                "w".to_owned(),
                Tensor::f32([2, 2], vec![1.0, f32::NAN, -0.0, 4.0]).unwrap(),
            ),
            ("step".to_owned(), Tensor::i64([], vec![7]).unwrap()),
            ("none".to_owned(), Tensor::f32([0, 3], vec![]).unwrap()),
        ]
    }

    fn written(folder: &Path) -> PathBuf {
        let path = folder.join("file");
        write(&path, |path| File::create_new(path), &"a note", &tensors()).unwrap();
        path
    }

    #[test]
    fn what_was_written_is_read_bit_for_bit() {
        let folder = tempfile::tempdir().unwrap();
        let (note, read): (String, _) = read(&written(folder.path())).unwrap();
        assert_eq!(note, "a note");
        for ((name, tensor), (expected, wanted)) in read.iter().zip(&tensors()) {
            assert_eq!((name, tensor.as_bytes()), (expected, wanted.as_bytes()));
            assert_eq!(tensor.shape(), wanted.shape());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_flipped_bit_or_a_cut_anywhere_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = fs::read(written(folder.path())).unwrap();
        for place in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[place] ^= 1 << bit;
                assert!(parse::<String>(&changed).is_err(), "bit {bit} of byte {place}");
            }
            assert!(parse::<String>(&bytes[..place]).is_err(), "cut at {place}");
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert!(parse::<String>(&longer).is_err());
    }

    /// Appends the SHA-256 of `body`.
    fn sealed(body: &[u8]) -> Vec<u8> {
        [body, Sha256::digest(body).as_slice()].concat()
    }

    #[test]
    fn invalid_content_with_a_valid_checksum_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = fs::read(written(folder.path())).unwrap();
        let body = &bytes[..bytes.len() - HASH];
        let mut newer = body.to_vec();
        newer[MAGIC.len()] = 2;
        let said = parse::<String>(&sealed(&newer)).unwrap_err().to_string();
        assert!(said.contains("version 2"), "{said}");
        let mut endless = body.to_vec();
        endless[MAGIC.len() + 4..MAGIC.len() + 12].fill(0xff);
        assert!(matches!(
            parse::<String>(&sealed(&endless)),
            Err(FileError::Content(_))
        ));
        assert!(matches!(
            parse::<String>(&sealed(&body[..body.len() - 1])),
            Err(FileError::Content(_))
        ));
        assert!(matches!(
            parse::<String>(&sealed(b"something else")),
            Err(FileError::Foreign)
        ));
        assert!(matches!(parse::<u64>(&sealed(body)), Err(FileError::Content(_))));
    }

    #[test]
    fn a_full_disk_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path());
        let before = fs::read(&path).unwrap();
        let full: Create = |_| File::options().write(true).open("/dev/full");
        let error = write(&path, full, &"another", &tensors()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).unwrap(), before);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
