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
/// Hex digits of a hash that the name of a file with weights has: no model ever finds other weights under the name it knows.
const DIGITS: usize = 16;
/// What such a file's name ends with.
const DATA: &str = ".data";

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

    /// A hash of the layers up to the cut `to`: the same of every file that has them, whatever follows them there, of whatever size, and
    /// in whatever order weights lie.
    ///
    /// # Errors
    /// As [`Model::slice`].
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
        let mut add = |bytes: Vec<u8>| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        add(proto.encode_to_vec());
        weights.iter().for_each(|weight| add(weight.encode_to_vec()));
        Ok(hex::encode(hash.finalize()))
    }

    /// Writes the model to `path`; over 2 GiB its weights go to `<file name>.<hash>.data` beside it. A file appears at `path` only when it
    /// is complete, and until then the model that was there keeps its own weights.
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
            let mut weights = initializers(&mut proto);
            let data = beside(path, &(digits(&weights) + DATA));
            let location = name_of(&data);
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
        let names: Vec<PathBuf> = self.files.iter().map(|(_, path)| path.clone()).collect();
        // What is not in its place yet goes when this is dropped.
        while let Some((partial, path)) = self.files.first() {
            std::fs::rename(partial, path).map_err(|source| GraphError::Write {
                path: path.clone(),
                source,
            })?;
            self.files.remove(0);
        }
        remove_stale(&names);
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

/// Removes the weights of models that were at the place of this one, whose files are these.
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
        let is_hash =
            |text: &str| text.len() == DIGITS && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        if digits.is_some_and(is_hash) && files.iter().all(|file| name_of(file) != name) {
            // Nothing refers to it; whoever writes here next tries again.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The first digits of a hash of the weights that [`move_out`] moves.
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
    weight.raw_data.len() >= WORTH_MOVING
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
    for weight in weights.iter_mut().filter(|weight| is_moved(weight)) {
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
