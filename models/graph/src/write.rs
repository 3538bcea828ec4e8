//! Writes a model to bytes or to a file, with its weights in a separate file if one file would be too large.

use crate::onnx::{ModelProto, StringStringEntry, TensorProto};
use crate::{GraphError, Model};
use frostline_sealed::whole_file::Unfinished;
use prost::Message;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum size of an ONNX file in bytes. The file is a single protobuf message. Readers use signed 32-bit
/// sizes.
pub const ONE_FILE: usize = i32::MAX as usize;
/// Minimum size of weights in the separate file, in bytes. Smaller weights are stored in the model, like
/// ONNX's own tools do.
const MIN_EXTERNAL_BYTES: usize = 1024;
/// Alignment of weights in the separate file, in bytes. It allows readers to map them into memory.
const ALIGNMENT: u64 = 4096;
/// Number of hex digits for the hash in the name of a weight file. The hash prevents a model from reading the
/// weights of another model that was written to the same path.
const DIGITS: usize = 16;
/// Suffix of weight files.
const DATA: &str = ".data";

impl Model {
    /// Encodes the model as an ONNX file. The same model always gives the same bytes.
    ///
    /// # Errors
    /// Returns [`GraphError::TooLarge`] if the model exceeds 2 GiB, which readers do not support.
    pub fn to_bytes(&self) -> Result<Vec<u8>, GraphError> {
        encoded(&self.clone().into_proto())
    }

    /// Encodes the model as an ONNX file. If it would exceed `limit` bytes, its weights become a second part
    /// with the name [`EncodedModel::WEIGHTS`], which engines can read from memory. All readers support a limit of
    /// [`ONE_FILE`].
    ///
    /// # Errors
    /// Returns [`GraphError::TooLarge`] if the model exceeds 2 GiB without these weights.
    pub fn to_parts(&self, limit: usize) -> Result<EncodedModel, GraphError> {
        let mut proto = self.clone().into_proto();
        let mut weights = None;
        if proto.encoded_len() > limit {
            let mut moved = Vec::new();
            move_out(&mut initializers(&mut proto), EncodedModel::WEIGHTS, &mut moved)
                .map_err(|source| failed(Path::new(EncodedModel::WEIGHTS), source))?;
            weights = Some(moved.into());
        }
        let model = encoded(&proto)?;
        Ok(EncodedModel { model, weights })
    }

    /// Returns the SHA-256 of [`Model::to_bytes`] in lowercase hex.
    ///
    /// # Errors
    /// Returns the same errors as [`Model::to_bytes`].
    pub fn sha256(&self) -> Result<String, GraphError> {
        Ok(hex::encode(Sha256::digest(self.to_bytes()?)))
    }

    /// Returns a hash of the layers up to the cut `to`. The hash is the same for all files with these layers.
    /// It does not depend on later layers or on the order of the weights. There is no limit on the size of
    /// the model.
    ///
    /// # Errors
    /// Returns the same errors as [`Model::slice`].
    pub fn layers_sha256(&self, to: &str) -> Result<String, GraphError> {
        let mut proto = self.slice(None, Some(to))?.into_proto();
        let mut weights = Vec::new();
        if let Some(graph) = &mut proto.graph {
            graph.name.clear();
            weights = std::mem::take(&mut graph.initializer);
        }
        proto.ir_version = 0;
        weights.sort_by(|a, b| a.name.cmp(&b.name));
        let mut hash = Sha256::new();
        let weights = weights.iter().map(|weight| weight.encode_to_vec());
        for bytes in std::iter::once(proto.encode_to_vec()).chain(weights) {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        }
        Ok(hex::encode(hash.finalize()))
    }

    /// Writes the model to `path`. Above 2 GiB, the weights are written to `<file name>.<hash>.data` in the
    /// same folder. A file is moved to `path` only when it is complete. Until then, the previous model and
    /// the weights of the previous model do not change. Links are followed, and pipes and devices are written
    /// to.
    ///
    /// # Errors
    /// Returns [`GraphError::Write`] if a file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), GraphError> {
        self.stage(path, ONE_FILE)?.commit()
    }

    /// Writes the same files as [`Model::write`] under temporary names. The weights are stored in a separate
    /// file if the model would exceed `limit` bytes. All readers support a limit of [`ONE_FILE`].
    ///
    /// # Errors
    /// Returns [`GraphError::Write`] if a file cannot be written.
    pub fn stage(&self, path: impl AsRef<Path>, limit: usize) -> Result<Staged, GraphError> {
        let path = path.as_ref();
        let model = Unfinished::create(path).map_err(|source| failed(path, source))?;
        let mut proto = self.clone().into_proto();
        let mut weights = None;
        if proto.encoded_len() > limit {
            let Some(model) = model.path() else {
                let why =
                    "cannot write a second file with weights to a pipe or device; choose a regular file";
                return Err(failed(path, io::Error::other(why)));
            };
            let mut moved = initializers(&mut proto);
            let data = beside(model, &(digits(&moved) + DATA));
            let location = name_of(&data);
            let file = Unfinished::create(&data).map_err(|source| failed(&data, source))?;
            fill(&file, |to| move_out(&mut moved, &location, to)).map_err(|source| failed(&data, source))?;
            weights = Some(file);
        }
        fill(&model, |to| to.write_all(&proto.encode_to_vec())).map_err(|source| failed(path, source))?;
        Ok(Staged { weights, model })
    }
}

fn failed(path: &Path, source: io::Error) -> GraphError {
    GraphError::Write {
        path: path.to_owned(),
        source,
    }
}

/// Writes the output of `write` to `file`.
fn fill(file: &Unfinished, write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>) -> io::Result<()> {
    let mut to = BufWriter::new(file.file());
    write(&mut to)?;
    to.flush()
}

fn encoded(proto: &ModelProto) -> Result<Vec<u8>, GraphError> {
    let bytes = proto.encoded_len();
    let limit = ONE_FILE;
    if bytes > limit {
        return Err(GraphError::TooLarge { bytes, limit });
    }
    Ok(proto.encode_to_vec())
}

/// Encoded model with included or separate weights.
#[derive(Debug, Clone)]
pub struct EncodedModel {
    /// Bytes of the ONNX file.
    pub model: Vec<u8>,
    /// Bytes of the file to which the model refers as [`EncodedModel::WEIGHTS`], or `None` if the weights are
    /// included.
    pub weights: Option<Arc<[u8]>>,
}

impl EncodedModel {
    /// Location in the model that refers to its separate weights.
    pub const WEIGHTS: &str = "weights";
}

/// Complete files of a model with temporary names. Dropping the value removes them. A model in a pipe or
/// device is already written.
#[derive(Debug)]
#[must_use = "dropping this value removes the files; call commit to keep them"]
pub struct Staged {
    weights: Option<Unfinished>,
    model: Unfinished,
}

impl Staged {
    /// Moves the files to their final paths and removes the weights of previous models at these paths.
    ///
    /// # Errors
    /// Returns [`GraphError::Write`] if a file cannot be moved.
    pub fn commit(self) -> Result<(), GraphError> {
        let files = [self.weights, Some(self.model)];
        let names: Vec<PathBuf> = files
            .iter()
            .flatten()
            .filter_map(Unfinished::path)
            .map(Path::to_owned)
            .collect();
        // The weights come first, because the model is unusable without them.
        for file in files.into_iter().flatten() {
            let path = file.path().unwrap_or(Path::new("")).to_owned();
            file.finish()
                .map_err(|source| GraphError::Write { path, source })?;
        }
        remove_stale(&names);
        Ok(())
    }
}

/// Removes weight files of previous models with the same path. `files` contains the current files. The last
/// file is the model.
fn remove_stale(files: &[PathBuf]) {
    let Some(model) = files.last() else { return };
    let folder = model.parent().filter(|folder| !folder.as_os_str().is_empty());
    let there = std::fs::read_dir(folder.unwrap_or(Path::new(".")));
    let prefix = name_of(model) + ".";
    for entry in there.into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let digits = name
            .strip_prefix(&prefix)
            .and_then(|rest| rest.strip_suffix(DATA));
        if digits
            .is_some_and(|text| text.len() == DIGITS && text.bytes().all(|digit| digit.is_ascii_hexdigit()))
            && files.iter().all(|file| name_of(file) != name)
        {
            // No model refers to the file. If it cannot be removed, the next write tries again.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Returns the first digits of a hash of the weights. The hash covers the weights moved by [`move_out`].
fn digits(weights: &[&mut TensorProto]) -> String {
    let mut hash = Sha256::new();
    for weight in weights.iter().filter(|weight| is_moved(weight)) {
        hash.update((weight.raw_data.len() as u64).to_le_bytes());
        hash.update(&weight.raw_data);
    }
    let mut digits = hex::encode(hash.finalize());
    digits.truncate(DIGITS);
    digits
}

fn is_moved(weight: &TensorProto) -> bool {
    weight.raw_data.len() >= MIN_EXTERNAL_BYTES
}

/// Returns `path` with an extension added to the file name.
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

/// Writes the larger weights to `file` and replaces their data by references to it.
fn move_out(weights: &mut [&mut TensorProto], location: &str, file: &mut impl Write) -> std::io::Result<()> {
    let mut offset = 0_u64;
    for weight in weights.iter_mut().filter(|weight| is_moved(weight)) {
        let start = offset.next_multiple_of(ALIGNMENT);
        std::io::copy(&mut std::io::Read::take(std::io::repeat(0), start - offset), file)?;
        file.write_all(&weight.raw_data)?;
        let length = weight.raw_data.len();
        offset = start + length as u64;
        let entries = [
            ("location", location.to_owned()),
            ("offset", start.to_string()),
            ("length", length.to_string()),
        ];
        let entries = entries.map(|(key, value)| StringStringEntry {
            key: key.into(),
            value,
        });
        weight.external_data = entries.into();
        weight.data_location = 1;
        weight.raw_data.clear();
    }
    Ok(())
}
