//! Reading a model from bytes, or from a file with its weights beside it.

use crate::external::{self, entry, location};
use crate::onnx::{ModelProto, TensorProto};
use crate::{GraphError, Model};
use bytes::Bytes;
use prost::Message;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

impl Model {
    /// A network from the bytes of an ONNX file, ready to be cut: it takes one input and gives one output, and its
    /// batch is dynamic (a baked-in batch of 1 is rewritten). Weights stay slices of `bytes`.
    ///
    /// # Errors
    /// [`GraphError::NotOnnx`], [`GraphError::Malformed`], [`GraphError::ExternalData`] when weights are kept elsewhere,
    /// [`GraphError::Inputs`], [`GraphError::Outputs`], [`GraphError::InputShape`], [`GraphError::FixedBatch`].
    pub fn from_bytes(bytes: Bytes) -> Result<Self, GraphError> {
        let proto = decode(bytes)?;
        external::refuse(
            &proto,
            "only the model's own bytes are accepted here; send it with its weights inside",
        )?;
        crate::contract::network_from(proto, None)
    }

    /// A network from an ONNX file; weights kept in files beside it are read too. See [`Model::from_bytes`].
    ///
    /// # Errors
    /// As [`Model::from_bytes`]; [`GraphError::Read`]; [`GraphError::ExternalData`] when a weight's place is an absolute path or
    /// leaves the model's folder.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, GraphError> {
        Self::read_sized(path, None)
    }

    /// [`Model::read`] of a network that is exported for images of any size: open axes of its input become `[3, image_size, image_size]`.
    ///
    /// # Errors
    /// As [`Model::read`]; [`GraphError::InputShape`] where the input is fixed to another size.
    pub fn read_sized(path: impl AsRef<Path>, image_size: Option<usize>) -> Result<Self, GraphError> {
        let path = path.as_ref();
        let mut proto = decode(read_file(path)?)?;
        let mut files = DataFiles {
            model: path,
            read: HashMap::new(),
        };
        let weights = proto.graph.iter_mut().flat_map(|graph| &mut graph.initializer);
        for weight in weights.filter(|weight| external::is_outside(weight)) {
            files.load(weight)?;
        }
        external::refuse(
            &proto,
            "only initializers may be kept outside the model; save it with its constants inside",
        )?;
        crate::contract::network_from(proto, image_size)
    }
}

fn read_file(path: &Path) -> Result<Bytes, GraphError> {
    let failed = |source| GraphError::Read {
        path: path.into(),
        source,
    };
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(failed(std::io::Error::other("it is not a regular file")));
    }
    std::fs::read(path).map(Bytes::from).map_err(failed)
}

pub(crate) fn decode(bytes: Bytes) -> Result<ModelProto, GraphError> {
    if bytes.is_empty() {
        return Err(GraphError::NotOnnx {
            why: "it is empty".into(),
        });
    }
    ModelProto::decode(bytes).map_err(|error| GraphError::NotOnnx { why: error.into() })
}

/// The data files beside a model, each read once.
struct DataFiles<'a> {
    model: &'a Path,
    read: HashMap<PathBuf, Bytes>,
}

impl DataFiles<'_> {
    /// Fetches the data of `weight` and makes it part of the message.
    fn load(&mut self, weight: &mut TensorProto) -> Result<(), GraphError> {
        let refused = |why: &str| external::refused(weight, why);
        let path = self.beside(weight)?;
        let file = match self.read.get(&path) {
            Some(file) => file.clone(),
            None => self.read.entry(path.clone()).or_insert(read_file(&path)?).clone(),
        };
        let number = |key| match entry(weight, key) {
            Some(text) => text
                .parse()
                .map(Some)
                .map_err(|_| refused(&format!("its {key} `{text}` is an invalid number"))),
            None => Ok(None),
        };
        let start: usize = number("offset")?.unwrap_or(0);
        let length = number("length")?.unwrap_or_else(|| file.len().saturating_sub(start));
        let end = start.checked_add(length).filter(|&end| end <= file.len());
        let end = end.ok_or_else(|| {
            refused(&format!(
                "bytes {start}.. of length {length} lie outside that file of {} bytes",
                file.len()
            ))
        })?;
        weight.raw_data = file.slice(start..end);
        weight.data_location = 0;
        weight.external_data.clear();
        Ok(())
    }

    /// The file of `weight`, which must stay in the model's folder, links followed.
    fn beside(&self, weight: &TensorProto) -> Result<PathBuf, GraphError> {
        let relative = Path::new(location(weight));
        let mut parts = relative.components();
        if parts.clone().next().is_none() || !parts.all(|part| matches!(part, Component::Normal(_))) {
            let why = "weights are read only from the model's own folder; move them there";
            return Err(external::refused(weight, why));
        }
        let folder = folder_of(self.model);
        let path = folder.join(relative);
        let real = path
            .canonicalize()
            .map_err(|source| GraphError::Read { path, source })?;
        // A model that is itself a link (as download caches keep them) has its weights beside the link's target.
        let homes = [
            Some(folder),
            self.model.canonicalize().ok().map(|model| folder_of(&model)),
        ];
        let mut homes = homes
            .into_iter()
            .flatten()
            .filter_map(|home| home.canonicalize().ok());
        if homes.any(|home| real.starts_with(home)) {
            return Ok(real);
        }
        let why = "it is a link that leaves the model's folder; copy the weights there";
        Err(external::refused(weight, why))
    }
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
        .to_path_buf()
}
