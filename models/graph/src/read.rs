//! Reads models from bytes, or from files with weights stored in separate files.

use crate::external::{self, entry, location};
use crate::onnx::{ModelProto, TensorProto};
use crate::{GraphError, Interface, Model};
use bytes::Bytes;
use frostline_tensor::StandIn;
use prost::Message;
use std::collections::HashMap;
use std::io;
use std::path::{Component, Path, PathBuf};

impl Model {
    /// Reads a network from the bytes of an ONNX file. The network must have a single input, a single output
    /// and a dynamic batch. If the exporter fixed the batch to 1, it is opened. Weights stay slices of
    /// `bytes`.
    ///
    /// # Errors
    /// Returns [`GraphError::NotOnnx`] or [`GraphError::Malformed`] if the bytes are not a valid model,
    /// [`GraphError::ExternalData`] if weights are stored elsewhere, [`GraphError::Inputs`] or
    /// [`GraphError::Outputs`] if the network does not have exactly one of each, [`GraphError::InputShape`]
    /// if the input has no fixed size per sample, and [`GraphError::FixedBatch`] if the batch is fixed and
    /// cannot be opened.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, GraphError> {
        let proto = decode(bytes)?;
        external::refuse(
            &proto,
            "only a single file is accepted; send a model with embedded weights",
        )?;
        crate::contract::network_from(proto, &Interface::default())
    }

    /// Reads a network from an ONNX file, including weights in other files of its folder. See
    /// [`Model::from_bytes`].
    ///
    /// # Errors
    /// Returns the errors of [`Model::from_bytes`], [`GraphError::Read`] if a file cannot be read, and
    /// [`GraphError::ExternalData`] if the location of a weight is an absolute path or outside the model's
    /// folder.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, GraphError> {
        Self::read_as(path, &Interface::default())
    }

    /// Reads a network as [`Model::read`] does, with the given image size and output.
    ///
    /// # Errors
    /// Returns the errors of [`Model::read`], [`GraphError::UnknownOutput`] if the output does not exist, and
    /// [`GraphError::InputShape`] if the input is fixed to another size or is not an image.
    pub fn read_as(path: impl AsRef<Path>, interface: &Interface) -> Result<Self, GraphError> {
        crate::contract::network_from(read_proto(path.as_ref())?, interface)
    }

    /// Reads a network like [`Model::read_as`] and joins the inputs like [`Model::with_joint_input`]. The network can
    /// have several inputs, and inputs of integers.
    ///
    /// # Errors
    /// Returns the errors of [`Model::read_as`] and of [`Model::with_joint_input`].
    pub fn read_joined(path: impl AsRef<Path>, interface: &Interface) -> Result<Self, GraphError> {
        crate::contract::joined_network_from(read_proto(path.as_ref())?, interface)
    }
}

/// Reads a model, including the weights in other files of the folder.
fn read_proto(path: &Path) -> Result<ModelProto, GraphError> {
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
        "only initializers can be stored outside the model; save it with embedded constants",
    )?;
    Ok(proto)
}

fn read_file(path: &Path) -> Result<Bytes, GraphError> {
    read_regular(path).map_err(|source| GraphError::Read {
        path: path.into(),
        source,
    })
}

/// Reads a file that is not a pipe, a device or a folder.
fn read_regular(path: &Path) -> io::Result<Bytes> {
    let metadata = std::fs::metadata(path).map_err(|error| with_stand_in(path, error))?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    std::fs::read(path).map(Bytes::from)
}

/// Names the file that is stored next to the name of a missing file instead of it, if any.
fn with_stand_in(path: &Path, error: io::Error) -> io::Error {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stand_ins = [
        (format!(".{name}.icloud"), StandIn::ICloud),
        (format!("{name}.dvc"), StandIn::Dvc),
    ];
    match stand_ins
        .iter()
        .find(|(name, _)| path.with_file_name(name).exists())
    {
        Some((name, stand_in)) if error.kind() == io::ErrorKind::NotFound => {
            io::Error::new(error.kind(), format!("{name} is {stand_in}"))
        }
        _ => error,
    }
}

pub(crate) fn decode(bytes: Bytes) -> Result<ModelProto, GraphError> {
    // An empty file is a valid message.
    if bytes.is_empty() {
        return Err(not_onnx(&bytes));
    }
    ModelProto::decode(bytes.clone()).map_err(|_| not_onnx(&bytes))
}

/// Returns the error for a file that cannot be decoded, with the recognized format and the next step.
pub(crate) fn not_onnx(bytes: &[u8]) -> GraphError {
    let why = match StandIn::detect(bytes) {
        Some(stand_in) => stand_in.into(),
        None => explain(bytes).into(),
    };
    GraphError::NotOnnx { why }
}

fn explain(bytes: &[u8]) -> &'static str {
    /// Key of the IR version, with which exporters begin a file.
    const IR_VERSION: u8 = 0x08;
    match bytes {
        [] => "empty file; copy or export it again",
        [b'P', b'K', 3, 4, ..] | [0x80, 2..=5, ..] => {
            "the file is a PyTorch checkpoint or another archive; load it and export the network as .onnx, for example with \
             torch.onnx.export"
        }
        [IR_VERSION, ..] => "truncated or damaged file; copy or export it again",
        _ => "the file has another format; export the network as .onnx, for example with torch.onnx.export",
    }
}

/// Returns a number from the description of a weight's external data, or `None` if it is missing.
fn number(weight: &TensorProto, key: &str) -> Result<Option<usize>, GraphError> {
    match entry(weight, key) {
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|_| external::refused(weight, &format!("its {key} `{text}` is an invalid number"))),
        None => Ok(None),
    }
}

/// Cache for the data files of a model.
struct DataFiles<'a> {
    model: &'a Path,
    read: HashMap<PathBuf, Bytes>,
}

impl DataFiles<'_> {
    fn load(&mut self, weight: &mut TensorProto) -> Result<(), GraphError> {
        let path = self.beside(weight)?;
        let file = match self.read.get(&path) {
            Some(file) => file.clone(),
            None => self.read.entry(path.clone()).or_insert(read_file(&path)?).clone(),
        };
        let start = number(weight, "offset")?.unwrap_or(0);
        let length = number(weight, "length")?.unwrap_or_else(|| file.len().saturating_sub(start));
        let end = start.checked_add(length).filter(|&end| end <= file.len());
        let end = end.ok_or_else(|| {
            let why = match StandIn::detect(&file) {
                Some(stand_in) => format!("it is {stand_in}"),
                None => format!(
                    "bytes {start}.. of length {length} exceed the file of {} bytes",
                    file.len()
                ),
            };
            external::refused(weight, &why)
        })?;
        weight.raw_data = file.slice(start..end);
        weight.data_location = 0;
        weight.external_data.clear();
        Ok(())
    }

    /// Returns the path of the file with the data of `weight`. The path must stay in the model's folder after
    /// links are resolved.
    fn beside(&self, weight: &TensorProto) -> Result<PathBuf, GraphError> {
        let relative = Path::new(location(weight));
        let mut parts = relative.components();
        if parts.clone().next().is_none() || !parts.all(|part| matches!(part, Component::Normal(_))) {
            let why = "weights are read only from the model's folder; move the file to this folder";
            return Err(external::refused(weight, why));
        }
        let folder = folder_of(self.model);
        let path = folder.join(relative);
        let real = path
            .canonicalize()
            .map_err(|source| GraphError::Read { path, source })?;
        // Download caches store a model as a link, with its weights next to the link's target.
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
        let why = "the link leaves the model's folder; copy the file to this folder";
        Err(external::refused(weight, why))
    }
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
        .to_path_buf()
}
