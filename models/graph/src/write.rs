//! Writing a model: to bytes, or to a file, with its weights beside it when they are too large for one.

use crate::onnx::{ModelProto, StringStringEntry, TensorProto};
use crate::{GraphError, Model};
use prost::Message;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes one protobuf message, and so one ONNX file, may have: readers count them in signed 32-bit integers.
pub const ONE_FILE: usize = i32::MAX as usize;
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
        encoded(&self.clone().into_proto())
    }

    /// The model as the bytes of an ONNX file, and its weights beside it when it takes more than `limit` bytes, [`ONE_FILE`] for what all
    /// readers take: under the name [`Parts::WEIGHTS`], for engines that take them from memory.
    ///
    /// # Errors
    /// [`GraphError::TooLarge`] when what is no weight takes over 2 GiB.
    pub fn to_parts(&self, limit: usize) -> Result<Parts, GraphError> {
        let mut proto = self.clone().into_proto();
        let mut weights = None;
        if proto.encoded_len() > limit {
            let mut moved = Vec::new();
            move_out(&mut initializers(&mut proto), Parts::WEIGHTS, &mut moved).map_err(|source| {
                let path = Parts::WEIGHTS.into();
                GraphError::Write { path, source }
            })?;
            weights = Some(moved.into());
        }
        let model = encoded(&proto)?;
        Ok(Parts { model, weights })
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
        self.stage(path, ONE_FILE)?.commit()
    }

    /// Writes what [`Model::write`] writes, but under other names for now. The weights go beside the model when it takes more than
    /// `limit` bytes, [`ONE_FILE`] for files that all readers take.
    ///
    /// # Errors
    /// [`GraphError::Write`].
    pub fn stage(&self, path: impl AsRef<Path>, limit: usize) -> Result<Staged, GraphError> {
        let path = path.as_ref();
        let mut staged = Staged { files: Vec::new() };
        let mut proto = self.clone().into_proto();
        if proto.encoded_len() > limit {
            let data = beside(path, "data");
            let location = data
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let mut weights = initializers(&mut proto);
            staged.fill(data, |file| move_out(&mut weights, &location, file))?;
        }
        staged.fill(path.into(), |file| file.write_all(&proto.encode_to_vec()))?;
        Ok(staged)
    }
}

fn encoded(proto: &ModelProto) -> Result<Vec<u8>, GraphError> {
    let (bytes, limit) = (proto.encoded_len(), ONE_FILE);
    if bytes > limit {
        return Err(GraphError::TooLarge { bytes, limit });
    }
    Ok(proto.encode_to_vec())
}

/// A model in memory, its weights inside or beside it.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The ONNX file's bytes.
    pub model: Vec<u8>,
    /// The bytes of the file that the model calls [`Parts::WEIGHTS`]; `None` when the weights are inside.
    pub weights: Option<Arc<[u8]>>,
}

impl Parts {
    /// What a model calls the weights beside it.
    pub const WEIGHTS: &str = "weights";
}

/// A model's files, whole but under other names. Dropping this removes them.
#[derive(Debug)]
#[must_use = "the files are removed again unless they are committed"]
pub struct Staged {
    /// Where each lies and where it belongs, the weights first: a model without them is none.
    files: Vec<(PathBuf, PathBuf)>,
}

impl Staged {
    /// Moves the files to their places.
    ///
    /// # Errors
    /// [`GraphError::Write`].
    pub fn commit(mut self) -> Result<(), GraphError> {
        // What is not in its place yet goes when this is dropped.
        while let Some((partial, path)) = self.files.first() {
            std::fs::rename(partial, path).map_err(|source| GraphError::Write {
                path: path.clone(),
                source,
            })?;
            self.files.remove(0);
        }
        Ok(())
    }

    /// Writes one file beside `path`.
    fn fill(
        &mut self,
        path: PathBuf,
        fill: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
    ) -> Result<(), GraphError> {
        let partial = beside(&path, &format!("partial-{}", std::process::id()));
        self.files.push((partial.clone(), path.clone()));
        let write = || {
            let mut file = BufWriter::new(File::create(&partial)?);
            fill(&mut file)?;
            file.into_inner()
                .map_err(std::io::IntoInnerError::into_error)?
                .sync_all()
        };
        write().map_err(|source| GraphError::Write { path, source })
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        for (partial, _) in &self.files {
            // A file that was never made cannot be removed either.
            let _ = std::fs::remove_file(partial);
        }
    }
}

/// `path` with an extension added to its name.
fn beside(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".");
    name.push(extension);
    path.with_file_name(name)
}

fn initializers(proto: &mut ModelProto) -> Vec<&mut TensorProto> {
    proto
        .graph
        .iter_mut()
        .flat_map(|graph| &mut graph.initializer)
        .collect()
}

/// Writes the larger weights to `file` and leaves descriptions of where they lie.
fn move_out(weights: &mut [&mut TensorProto], location: &str, file: &mut impl Write) -> std::io::Result<()> {
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
