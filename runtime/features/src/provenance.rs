use crate::{Form, Row, Subject};
use frostline_tensor::PixelSpec;
use frostline_wire::{Encoding, Precision, Split, Values};
use serde::Serialize;
use serde_json::json;
use std::path::{Component, Path, PathBuf};

/// All that the values of kept rows depend on, beside the sample and its view.
#[derive(Debug, Clone)]
pub struct Provenance {
    /// For people: the network.
    pub model: String,
    /// For people: the freeze cut.
    pub freeze: String,
    /// The data root.
    pub data: String,
    /// A hash of the layers up to the freeze cut; empty where nothing is frozen.
    pub layers: String,
    /// The SHA-256 of the guest that runs them.
    pub guest: String,
    /// What the guest is told.
    pub parameters: String,
    /// What traveling does to rows.
    pub rounding: Rounding,
    /// How exactly hosts' GPUs compute.
    pub precision: Precision,
    /// Rows of every run on hosts.
    pub fixed_batch: Option<usize>,
    /// The version of ONNX Runtime that runs layers here.
    pub library: String,
    /// The device that it runs them on.
    pub device: String,
    /// What else bits depend on, where they count.
    pub exactly: Option<Exactly>,
    /// Of one row.
    pub shape: Vec<usize>,
}

/// What traveling from the split does to rows; each takes in those before it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rounding {
    /// Nothing.
    Exact,
    /// Half precision, before layers that run here.
    HalfBeforeLayers,
    /// Half precision, at the freeze cut: what arrives is what is kept.
    Half,
    /// Eight bits, at this split. That is no small error, so rows of each split are others.
    Eight(String),
}

/// What bits depend on and losses do not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exactly {
    /// Where rows come from.
    pub split: Split,
    /// Rows of a batch here.
    pub batch: usize,
    /// Threads that run them.
    pub threads: usize,
}

impl Provenance {
    /// The store of rows that are made so.
    pub fn subject(&self) -> Subject {
        Subject {
            model: self.model.clone(),
            freeze: self.freeze.clone(),
            data: data_root(&self.data),
            made_by: json!({
                // Another release may decode or resize otherwise.
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

    /// What a row of it is.
    pub fn row(&self) -> Row {
        let form = match self.rounding {
            Rounding::Half => Form::F16,
            Rounding::Exact | Rounding::HalfBeforeLayers | Rounding::Eight(_) => Form::F32,
        };
        let shape = self.shape.clone();
        Row { shape, form }
    }
}

impl Rounding {
    /// Of rows that travel in `encoding` from `split`, where layers run here up to the cut `freeze`.
    pub fn for_split(encoding: Encoding, split: &Split, freeze: &str) -> Self {
        let at_freeze = matches!(split, Split::Cut(cut) if cut == freeze);
        match encoding.values {
            Values::F32 | Values::U8 => Self::Exact,
            Values::F16 if at_freeze => Self::Half,
            Values::F16 => Self::HalfBeforeLayers,
            Values::Int8 => Self::Eight(split.to_string()),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Exact => "exact".to_owned(),
            Self::HalfBeforeLayers => "f16 before layers".to_owned(),
            Self::Half => "f16".to_owned(),
            Self::Eight(split) => format!("int8 at {split}"),
        }
    }

    /// Whether a store of rows rounded so takes one that was rounded like `other`.
    pub fn takes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Eight(own), Self::Eight(other)) => own == other,
            (Self::Half | Self::HalfBeforeLayers, other) => !matches!(other, Self::Eight(_)),
            (own, other) => other <= own,
        }
    }
}

/// A data root under one name, however it is written and through whatever links it is reached.
fn data_root(root: &str) -> String {
    let path = match root.strip_prefix("file://") {
        Some(path) => path,
        None if root.contains("://") => return root.trim_end_matches('/').to_owned(),
        None => root,
    };
    let absolute = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
    // One that is on the host alone is taken as it is written.
    let real = absolute.canonicalize().unwrap_or_else(|_| normal(&absolute));
    real.to_string_lossy().into_owned()
}

/// The path without `..`, as Python's `abspath` has it.
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

/// What a guest is told; a recipe for pixels always in the same words.
fn recipe(parameters: &str) -> String {
    let spec = serde_json::from_str::<PixelSpec>(parameters);
    let written = spec.and_then(|spec| serde_json::to_string(&spec));
    written.unwrap_or_else(|_| parameters.to_owned())
}
