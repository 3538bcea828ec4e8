//! Settings as Python hands them over: a dictionary, which is checked here as a whole.

use crate::errors;
use frostline_client::{ClientError, Deadlines, HostClient, Hosts, Inquiry, Token, Trust};
use frostline_features::{Provenance, Rounding};
use frostline_wire::{Encoding, Pin, Precision, Split, Terms};
use pyo3::prelude::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// The stock guest's component, as committed beside its sources.
pub(crate) static STOCK_GUEST: &[u8] = include_bytes!("../../../guest/prefix/prefix.wasm");

/// What else rows depend on.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Made {
    /// The freeze cut.
    pub(crate) freeze: String,
    /// See [`crate::kept::layers`].
    pub(crate) layers: String,
    /// What the guest does where the stream tells it nothing.
    pub(crate) usual: String,
    /// The version of ONNX Runtime here.
    pub(crate) library: String,
    pub(crate) shape: Vec<usize>,
}

/// Which hosts, and how they and we know each other.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reach {
    hosts: Vec<String>,
    token: Option<String>,
    token_file: Option<PathBuf>,
    ca: Option<PathBuf>,
    /// Whether the host was started by this package, so that messages need not name its address.
    #[serde(default)]
    embedded: bool,
}

/// What a stream of rows asks for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamSettings {
    hosts: Vec<String>,
    token: Option<String>,
    token_file: Option<PathBuf>,
    ca: Option<PathBuf>,
    #[serde(default)]
    embedded: bool,
    data: String,
    model: Option<(String, String)>,
    guest: Option<(String, String)>,
    #[serde(default)]
    parameters: String,
    #[serde(default)]
    encoding: Encoding,
    pub(crate) model_file: Option<PathBuf>,
    pub(crate) guest_file: Option<PathBuf>,
    #[serde(default = "open_requests")]
    pub(crate) open_requests: usize,
    #[serde(default = "request_samples")]
    request_samples: usize,
    #[serde(default = "ahead")]
    pub(crate) ahead: usize,
    pub(crate) threads: Option<usize>,
    #[serde(default = "memory")]
    pub(crate) memory: u64,
    #[serde(default)]
    priority: i32,
    fixed_batch: Option<usize>,
    #[serde(default)]
    precision: Precision,
}

// As the command's.
const fn open_requests() -> usize {
    8
}

const fn request_samples() -> usize {
    32
}

const fn ahead() -> usize {
    3
}

const fn memory() -> u64 {
    1 << 30
}

/// Reads a value of Python's as JSON has it.
///
/// # Errors
/// `frostline.SettingsError` that says what is wrong with it; never a value, which may be a token.
pub(crate) fn read<T: DeserializeOwned>(value: &Bound<'_, PyAny>, what: &str) -> PyResult<T> {
    let py = value.py();
    let text: String = py.import("json")?.call_method1("dumps", (value,))?.extract()?;
    serde_json::from_str(&text).map_err(|error| errors::settings(py, &format!("{what}: {error}")))
}

impl Reach {
    /// The hosts. Those of one name (`dns://`) are looked up and asked what they are called; nothing is sent to others before they are used.
    pub(crate) async fn hosts(&self) -> Result<Hosts, ClientError> {
        let token = match (&self.token, &self.token_file) {
            (Some(secret), _) => Some(Token::new(secret)?),
            (None, Some(file)) => Some(Token::read(file)?),
            (None, None) => None,
        };
        let trust = self.ca.as_deref().map_or(Ok(Trust::System), Trust::read)?;
        match (self.hosts.as_slice(), token) {
            ([url], Some(token)) if self.embedded => Ok(HostClient::embedded(url, token)?.into()),
            (urls, token) => Hosts::connect(urls, token, &trust, Deadlines::default()).await,
        }
    }
}

impl StreamSettings {
    /// What rows depend on that come so from `split`.
    pub(crate) fn provenance(&self, split: &Split, made: &Made) -> Provenance {
        let guest = self.guest.as_ref().map(|(_, sha256)| sha256.clone());
        let told = match self.parameters.trim() {
            "" => &made.usual,
            _ => &self.parameters,
        };
        Provenance {
            model: self
                .model
                .as_ref()
                .map_or("none", |(name, _)| name.as_str())
                .to_owned(),
            freeze: made.freeze.clone(),
            data: self.data.clone(),
            layers: made.layers.clone(),
            guest: guest.unwrap_or_else(|| hex::encode(Sha256::digest(STOCK_GUEST))),
            parameters: told.clone(),
            rounding: Rounding::for_split(self.encoding, split, &made.freeze),
            precision: self.precision,
            fixed_batch: self.fixed_batch,
            library: made.library.clone(),
            // Layers run here on the CPU.
            device: "cpu".to_owned(),
            exactly: None,
            shape: made.shape.clone(),
        }
    }

    pub(crate) fn reach(&self) -> Reach {
        Reach {
            hosts: self.hosts.clone(),
            token: self.token.clone(),
            token_file: self.token_file.clone(),
            ca: self.ca.clone(),
            embedded: self.embedded,
        }
    }

    /// What is asked for, whatever the cut.
    pub(crate) fn inquiry(&self) -> Inquiry {
        let pin = |pin: &(String, String)| Pin {
            name: pin.0.clone(),
            sha256: pin.1.clone(),
        };
        Inquiry {
            root: self.data.clone(),
            guest: self.guest.as_ref().map(pin),
            model: self.model.as_ref().map(pin),
            parameters: self.parameters.clone(),
            encoding: self.encoding,
            terms: Terms {
                priority: self.priority,
                fixed_batch: self.fixed_batch,
                precision: self.precision,
            },
            request_samples: self.request_samples,
        }
    }
}
