//! Writing a model: to bytes, or to a file, with its weights beside it when they are too large for one.

use crate::onnx::{StringStringEntry, TensorProto};
use crate::{GraphError, Model};
use prost::Message;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Bytes one protobuf message may have: readers count them in signed 32-bit integers.
const ONE_FILE: usize = i32::MAX as usize;
/// Smaller weights stay inside the model even when others do not, as ONNX's own tools do.
const WORTH_MOVING: usize = 1024;
/// Weights outside start at multiples of this, so that readers may map them.
const ALIGNMENT: u64 = 4096;

impl Model {
    /// The model as the bytes of an ONNX file; the same model always gives the same bytes.
    ///
    /// # Errors
    /// [`GraphError::TooLarge`] over 2 GiB, which no reader takes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, GraphError> {
        let proto = self.clone().into_proto();
        match proto.encoded_len() {
            bytes if bytes > ONE_FILE => Err(GraphError::TooLarge {
                bytes,
                limit: ONE_FILE,
            }),
            _ => Ok(proto.encode_to_vec()),
        }
    }

    /// The SHA-256 of [`Model::to_bytes`], in lower-case hex.
    ///
    /// # Errors
    /// As [`Model::to_bytes`].
    pub fn sha256(&self) -> Result<String, GraphError> {
        Ok(hex::encode(Sha256::digest(self.to_bytes()?)))
    }

    /// Writes the model to `path`; over 2 GiB its weights go to `<file name>.data` beside it. A file appears at `path` only when it is
    /// complete.
    ///
    /// # Errors
    /// [`GraphError::Write`].
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), GraphError> {
        self.write_within(path.as_ref(), ONE_FILE)
    }

    /// Writes the model, keeping its weights outside when it takes more than `limit` bytes.
    pub(crate) fn write_within(&self, path: &Path, limit: usize) -> Result<(), GraphError> {
        let mut proto = self.clone().into_proto();
        if proto.encoded_len() > limit {
            let data = beside(path, "data");
            let location = data
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let mut weights: Vec<&mut TensorProto> = proto
                .graph
                .iter_mut()
                .flat_map(|graph| &mut graph.initializer)
                .collect();
            replace_file(&data, |file| move_out(&mut weights, &location, file))?;
        }
        replace_file(path, |file| file.write_all(&proto.encode_to_vec()))
    }
}

/// `path` with an extension added to its name.
fn beside(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".");
    name.push(extension);
    path.with_file_name(name)
}

/// Writes the larger weights to `file` and leaves descriptions of where they lie.
fn move_out(
    weights: &mut [&mut TensorProto],
    location: &str,
    file: &mut BufWriter<File>,
) -> std::io::Result<()> {
    let mut offset = 0_u64;
    for weight in weights
        .iter_mut()
        .filter(|weight| weight.raw_data.len() >= WORTH_MOVING)
    {
        let start = offset.next_multiple_of(ALIGNMENT);
        std::io::copy(&mut std::io::Read::take(std::io::repeat(0), start - offset), file)?;
        file.write_all(&weight.raw_data)?;
        let length = weight.raw_data.len();
        offset = start + length as u64;
        let entry = |key: &str, value: String| StringStringEntry {
            key: key.into(),
            value,
        };
        weight.external_data = vec![
            entry("location", location.into()),
            entry("offset", start.to_string()),
            entry("length", length.to_string()),
        ];
        weight.data_location = 1;
        weight.raw_data.clear();
    }
    Ok(())
}

/// Fills a file under another name and moves it to `path` when it is complete.
fn replace_file(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<(), GraphError> {
    let partial = beside(path, &format!("partial-{}", std::process::id()));
    let write = || {
        let mut file = BufWriter::new(File::create(&partial)?);
        fill(&mut file)?;
        file.into_inner()
            .map_err(std::io::IntoInnerError::into_error)?
            .sync_all()?;
        std::fs::rename(&partial, path)
    };
    write().map_err(|source| {
        // The first failure is the one to report; a file that was never made cannot be removed either.
        let _ = std::fs::remove_file(&partial);
        GraphError::Write {
            path: path.into(),
            source,
        }
    })
}
