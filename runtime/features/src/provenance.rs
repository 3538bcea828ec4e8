use crate::{Form, Row, Subject};
use frostline_tensor::PixelSpec;
use frostline_wire::{Encoding, Precision, Split, TensorInfo, Values};
use serde::Serialize;
use serde_json::json;
use std::path::{Component, Path, PathBuf};

/// Inputs that determine the values of cached features, in addition to the sample and its view.
#[derive(Debug, Clone)]
pub struct Provenance {
    /// Name of the network, used for display only.
    pub model: String,
    /// Freeze cut, used for display only.
    pub freeze: String,
    /// Data root.
    pub data: String,
    /// Hash of the layers up to the freeze cut. Empty if no layer is frozen.
    pub layers: String,
    /// SHA-256 of the guest.
    pub guest: String,
    /// Parameters of the guest.
    pub parameters: String,
    /// Rounding of activations in transit.
    pub rounding: Rounding,
    /// Precision of GPU computations on hosts.
    pub precision: Precision,
    /// Batch size of stage executions on hosts, if it is fixed.
    pub fixed_batch: Option<usize>,
    /// ONNX Runtime version of the trainer.
    pub library: String,
    /// Device on which the trainer executes layers.
    pub device: String,
    /// Additional inputs for results that must be identical to the last bit.
    pub exactly: Option<Exactly>,
    /// Shape of one row.
    pub shape: Vec<usize>,
    /// Tensors that a row concatenates. Empty for a single tensor.
    pub tensors: Vec<TensorInfo>,
}

/// Rounding of activations sent from the split. Variants are ordered by increasing error.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rounding {
    /// No rounding.
    Exact,
    /// Half precision, followed by layers on the trainer.
    HalfBeforeLayers,
    /// Half precision at the freeze cut. The received values are cached.
    Half,
    /// Eight bits at this split. The error depends on the split, so splits do not share features.
    Int8(String),
}

/// Inputs that affect the last bits of the values but not the loss.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exactly {
    /// Split from which activations are sent.
    pub split: Split,
    /// Batch size for layers on the trainer.
    pub batch: usize,
    /// Number of threads for layers on the trainer.
    pub threads: usize,
}

impl Provenance {
    /// Returns the subject of the store for these features.
    pub fn subject(&self) -> Subject {
        Subject {
            model: self.model.clone(),
            freeze: self.freeze.clone(),
            data: data_root(&self.data),
            made_by: json!({
                // Image decoding and resizing may differ between releases.
                "frostline": env!("CARGO_PKG_VERSION"),
                "pixels": PixelSpec::VERSION,
                "layers": self.layers,
                "guest": self.guest,
                "parameters": recipe(&self.parameters),
                "rounding": self.rounding.name(),
                "precision": self.precision,
                "fixed_batch": self.fixed_batch,
                "library": self.library,
                "device": self.device,
                "exactly": self.exactly,
            }),
        }
    }

    /// Returns the format of the rows.
    pub fn row(&self) -> Row {
        let form = match self.rounding {
            Rounding::Half => Form::F16,
            Rounding::Exact | Rounding::HalfBeforeLayers | Rounding::Int8(_) => Form::F32,
        };
        Row {
            shape: self.shape.clone(),
            form,
            tensors: self.tensors.clone(),
        }
    }
}

impl Rounding {
    /// Returns the rounding of activations sent in `encoding` from `split`, if the trainer executes the
    /// layers up to the cut `freeze`.
    pub fn for_split(encoding: Encoding, split: &Split, freeze: &str) -> Self {
        let at_freeze = matches!(split, Split::Cut(cut) if cut == freeze);
        match encoding.values {
            Values::F32 | Values::U8 | Values::I32 => Self::Exact,
            Values::F16 if at_freeze => Self::Half,
            Values::F16 => Self::HalfBeforeLayers,
            Values::Int8 => Self::Int8(split.to_string()),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Exact => "exact".to_owned(),
            Self::HalfBeforeLayers => "f16 before layers".to_owned(),
            Self::Half => "f16".to_owned(),
            Self::Int8(split) => format!("int8 at {split}"),
        }
    }

    /// Returns true if a store with this rounding accepts features with the rounding `other`.
    pub fn accepts(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Int8(own), Self::Int8(other)) => own == other,
            (Self::Half | Self::HalfBeforeLayers, other) => !matches!(other, Self::Int8(_)),
            (own, other) => other <= own,
        }
    }
}

/// Returns a canonical name for a data root. Local paths are made absolute and links are resolved.
fn data_root(root: &str) -> String {
    let path = match root.strip_prefix("file://") {
        Some(path) => path,
        None if root.contains("://") => return root.trim_end_matches('/').to_owned(),
        None => root,
    };
    let absolute = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
    // Paths that exist only on the host are used without resolving links.
    let real = absolute.canonicalize().unwrap_or_else(|_| normal(&absolute));
    real.to_string_lossy().into_owned()
}

/// Resolves `..` without accessing the file system, like Python's `abspath`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            part => normal.push(part),
        }
    }
    normal
}

/// Returns the parameters of a guest. Pixel recipes are parsed and serialized to ignore formatting.
fn recipe(parameters: &str) -> String {
    let spec = serde_json::from_str::<PixelSpec>(parameters);
    let written = spec.and_then(|spec| serde_json::to_string(&spec));
    written.unwrap_or_else(|_| parameters.to_owned())
}
