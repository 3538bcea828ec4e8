//! Validation of settings from Python dictionaries.

use crate::errors;
use frostline_client::{ClientError, Deadlines, HostClient, Hosts, Inquiry, Token, Trust};
use frostline_features::{Provenance, Rounding};
use frostline_images::Matrix;
use frostline_tensor::{Augmentation, PixelSpec, View};
use frostline_wire::{Encoding, Precision, Split, TensorInfo, Terms, UploadRef};
use pyo3::prelude::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// The stock guest's component from `guest/prefix`.
pub(crate) static STOCK_GUEST: &[u8] = include_bytes!("../../../guest/prefix/prefix.wasm");

/// Inputs that determine cached features, in addition to the settings of the stream.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FeatureInputs {
    /// The freeze cut.
    pub(crate) freeze: String,
    /// Hash of the layers before the freeze cut, as returned by [`crate::features::layers`].
    pub(crate) layers: String,
    /// Recipe that the guest uses if the stream has no parameters.
    pub(crate) usual: String,
    /// ONNX Runtime version of this process.
    pub(crate) library: String,
    pub(crate) shape: Vec<usize>,
    /// Tensors that a row concatenates. Empty for a single tensor.
    #[serde(default)]
    pub(crate) tensors: Vec<TensorInfo>,
}

/// Addresses of hosts and credentials.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConnectionSettings {
    hosts: Vec<String>,
    token: Option<String>,
    token_file: Option<PathBuf>,
    ca: Option<PathBuf>,
    /// True if this package started the host. Messages then omit the address.
    #[serde(default)]
    embedded: bool,
}

/// Settings of requests for activations.
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

// Same defaults as the command.
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

/// Deserializes a Python value through JSON. `what` names the value in errors.
///
/// # Errors
/// Raises `frostline.SettingsError` if the value cannot be deserialized as `T`. The message names the field,
/// but does not quote a value of the wrong type, which may be a secret.
pub(crate) fn read<T: DeserializeOwned>(value: &Bound<'_, PyAny>, what: &str) -> PyResult<T> {
    let py = value.py();
    let text: String = py.import("json")?.call_method1("dumps", (value,))?.extract()?;
    let read = serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(&text));
    read.map_err(|error| {
        let path = error.path().to_string();
        let reason = without_value(&error.into_inner().to_string());
        let what = match path.as_str() {
            "." => what.to_owned(),
            field => format!("{what}: {field}"),
        };
        errors::invalid_settings(py, &format!("{what}: {reason}"))
    })
}

/// Checks the range of all values of an augmentation. `_native.pyi` documents the function.
#[pyfunction]
pub(crate) fn check_augmentation(augmentation: &Bound<'_, PyAny>) -> PyResult<()> {
    let read: Augmentation = read(augmentation, "augment")?;
    let checked = read.check();
    checked.map_err(|error| errors::invalid_settings(augmentation.py(), &format!("augment: {error}")))
}

/// Returns the matrix that maps positions in a network's input to positions in the sample's image. `_native.pyi`
/// documents the function.
#[pyfunction]
pub(crate) fn position_in_image(
    recipe: &Bound<'_, PyAny>,
    view: Option<&Bound<'_, PyAny>>,
    key: &str,
    height: u32,
    width: u32,
) -> PyResult<Matrix> {
    let spec: PixelSpec = read(recipe, "the recipe")?;
    let view: Option<View> = view.map(|view| read(view, "the view")).transpose()?;
    frostline_images::position_in_image((width, height), &spec, view.as_ref(), key)
        .map_err(|error| errors::invalid_settings(recipe.py(), &error.to_string()))
}

/// Removes the value from the message of serde, for example `invalid type: string "x", expected a sequence at
/// line 1 column 20`, and the location, which refers to an internal text.
fn without_value(message: &str) -> String {
    let message = message
        .rsplit_once(" at line ")
        .map_or(message, |(reason, _)| reason);
    match message.rsplit_once(", expected ") {
        Some((found, expected)) if found.starts_with("invalid ") => {
            let fault = found.split(": ").next().unwrap_or_default();
            format!("{fault}, expected {expected}")
        }
        _ => message.to_owned(),
    }
}

impl ConnectionSettings {
    /// Connects to the hosts. For a DNS name (`dns://`), this resolves the name and queries the names of the
    /// hosts. Otherwise no request is sent.
    pub(crate) async fn hosts(&self) -> Result<Hosts, ClientError> {
        let token = match (&self.token, &self.token_file) {
            (Some(secret), _) => Some(Token::new(secret)?),
            (None, Some(file)) => Some(Token::read(file)?),
            (None, None) => None,
        };
        let trust = self.ca.as_deref().map_or(Ok(Trust::default()), Trust::read)?;
        match (self.hosts.as_slice(), token) {
            ([url], Some(token)) if self.embedded => Ok(HostClient::embedded(url, token)?.into()),
            (urls, token) => Hosts::connect(urls, token, &trust, Deadlines::default()).await,
        }
    }
}

impl StreamSettings {
    /// Returns the inputs that determine features computed from `split`.
    pub(crate) fn provenance(&self, split: &Split, made: &FeatureInputs) -> Provenance {
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
            // This package executes layers on the CPU.
            device: "cpu".to_owned(),
            exactly: None,
            shape: made.shape.clone(),
            tensors: made.tensors.clone(),
        }
    }

    pub(crate) fn connection_settings(&self) -> ConnectionSettings {
        ConnectionSettings {
            hosts: self.hosts.clone(),
            token: self.token.clone(),
            token_file: self.token_file.clone(),
            ca: self.ca.clone(),
            embedded: self.embedded,
        }
    }

    /// Returns the request for activations without the cut.
    pub(crate) fn inquiry(&self) -> Inquiry {
        Inquiry {
            root: self.data.clone(),
            guest: self.guest.as_ref().map(upload_ref),
            model: self.model.as_ref().map(upload_ref),
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

fn upload_ref((name, sha256): &(String, String)) -> UploadRef {
    UploadRef {
        name: name.clone(),
        sha256: sha256.clone(),
    }
}
