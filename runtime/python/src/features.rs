//! Features cached on this machine's disk, for later passes and later programs.

use crate::errors;
use crate::process::PerProcess;
use crate::settings::{FeatureInputs, StreamSettings, read};
use frostline_features::Cache;
use frostline_graph::{GraphError, Interface, Model};
use frostline_job::{CacheLimit, StatedPixels};
use frostline_rows::RowCache;
use frostline_tensor::PixelSpec;
use frostline_wire::{Split, TensorInfo};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Identity and location of cached features.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CacheSettings {
    /// Cache folder. Defaults to the user's cache folder.
    folder: Option<PathBuf>,
    /// Limit in bytes. Defaults to half of the free disk space.
    limit: Option<u64>,
    /// Settings of the requests for activations.
    stream: StreamSettings,
    /// Split from which hosts send activations.
    split: Split,
    made: FeatureInputs,
    /// Expected number of rows. Older stores are evicted to make room for them.
    rows: u64,
}

/// Cache of rows, which can be used after a fork. `_native.pyi` documents the methods.
#[pyclass(module = "frostline._native", frozen)]
pub(crate) struct FeatureCache {
    settings: CacheSettings,
    open: PerProcess<OpenCache>,
}

/// An open cache, used by a single process.
pub(crate) struct OpenCache {
    pub(crate) rows: Arc<RowCache>,
    /// Reason for the end of writing. Reset by [`OpenCache::take_messages`].
    stop_reason: Arc<Mutex<Option<String>>>,
}

#[pymethods]
impl FeatureCache {
    /// Opens the cache, also in each process that unpickles this object.
    #[new]
    fn new(config: &Bound<'_, PyAny>) -> PyResult<Self> {
        let cache = Self {
            settings: read(config, "the cache settings")?,
            open: PerProcess::empty(),
        };
        cache.open(config.py())?;
        Ok(cache)
    }

    /// Waits until all queued rows are written or have failed. Returns messages about problems since the
    /// last call.
    fn settle(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let open = self.open(py)?;
        py.detach(|| open.rows.store().settle());
        Ok(open.take_messages())
    }
}

impl FeatureCache {
    pub(crate) fn open(&self, py: Python<'_>) -> PyResult<Arc<OpenCache>> {
        self.open.get(py, || {
            OpenCache::new(&self.settings).map_err(|why| errors::general(py, &why))
        })
    }
}

impl OpenCache {
    fn new(settings: &CacheSettings) -> Result<Self, String> {
        let cache = Cache::with_defaults(settings.folder.clone(), settings.limit);
        let cache = cache.ok_or("cannot determine the cache folder or the free disk space; set FROSTLINE_FEATURE_FOLDER and feature_cache=")?;
        let made = settings.stream.provenance(&settings.split, &settings.made);
        let stop_reason = Arc::new(Mutex::new(None));
        let told = Arc::clone(&stop_reason);
        let rows = RowCache::open(
            &cache,
            made,
            settings.rows,
            Arc::new(move |why| *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(why)),
        );
        Ok(Self {
            rows: Arc::new(rows.map_err(|error| error.to_string())?),
            stop_reason,
        })
    }

    fn take_messages(&self) -> Vec<String> {
        let stopped = self
            .stop_reason
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        stopped
            .into_iter()
            .chain(self.rows.store().take_warnings())
            .collect()
    }
}

/// Parses a limit such as `4GiB` and returns it in bytes, or `None` for `off`.
#[pyfunction]
pub(crate) fn feature_limit(py: Python<'_>, word: &str) -> PyResult<Option<u64>> {
    match word.parse() {
        Ok(CacheLimit::Off) => Ok(None),
        Ok(CacheLimit::Bytes(bytes)) => Ok(Some(bytes)),
        Err(why) => Err(errors::invalid_settings(py, &format!("feature_cache: {why}"))),
    }
}

/// Reads an ONNX file with the given output and image size, and returns it as bytes.
#[pyfunction]
#[pyo3(signature = (file, output, image_size))]
pub(crate) fn network(
    py: Python<'_>,
    file: PathBuf,
    output: Option<String>,
    image_size: Option<usize>,
) -> PyResult<Vec<u8>> {
    let interface = Interface { image_size, output };
    py.detach(|| Model::read_as(file, &interface)?.to_bytes())
        .map_err(|error| errors::invalid_settings(py, &error.to_string()))
}

/// Converts a configuration of timm or transformers to a recipe as JSON.
#[pyfunction]
pub(crate) fn stated_pixels(py: Python<'_>, config: &str) -> PyResult<String> {
    let stated = StatedPixels::from_json(config)
        .map_err(|why| errors::invalid_settings(py, &format!("pixels: {why}")))?;
    Ok(stated.to_string())
}

/// A path to an ONNX file, or the content of the file.
#[derive(FromPyObject)]
pub(crate) enum NetworkSource {
    #[pyo3(transparent)]
    Bytes(PyBackedBytes),
    #[pyo3(transparent)]
    File(PathBuf),
}

/// Returns a hash of the layers before `cut` and the default recipe for the network's input as JSON. The hash
/// is empty at the cuts `none` and `input`. The default recipe is read from the model's metadata. For models
/// without this metadata, it is ImageNet's at the input size, without normalization if the first layers
/// normalize. It is empty if only a guest can prepare the input.
#[pyfunction]
pub(crate) fn layers(py: Python<'_>, network: NetworkSource, cut: &str) -> PyResult<(String, String)> {
    let (hash, usual) = py
        .detach(|| read_layers(network, cut))
        .map_err(|error| errors::invalid_settings(py, &error.to_string()))?;
    let usual = usual.and_then(|spec| serde_json::to_string(&spec).ok());
    Ok((hash, usual.unwrap_or_default()))
}

impl NetworkSource {
    fn read(self) -> Result<Model, GraphError> {
        match self {
            Self::Bytes(bytes) => Model::from_bytes(bytes::Bytes::from_owner(bytes)),
            Self::File(file) => Model::read(file),
        }
    }
}

/// Returns the layers up to the cut `freeze` with the joint cuts at which they can be split, and the layers from such a
/// cut `split` to `freeze`.
#[pyfunction]
pub(crate) fn split_layers(
    py: Python<'_>,
    network: NetworkSource,
    freeze: &str,
    split: &str,
) -> PyResult<(Vec<u8>, Vec<u8>)> {
    let divide = || -> Result<(Vec<u8>, Vec<u8>), GraphError> {
        let (frozen, freeze) = network.read()?.with_cut(freeze)?;
        let frozen = frozen.with_splits(&freeze)?;
        let middle = frozen.slice(Some(split), Some(&freeze))?;
        Ok((
            frozen.layers_with_splits(&freeze)?.to_bytes()?,
            middle.to_bytes()?,
        ))
    };
    py.detach(divide)
        .map_err(|error| errors::invalid_settings(py, &error.to_string()))
}

/// Returns the tensors that a row at `cut` concatenates, as JSON. The list is empty for a single tensor.
#[pyfunction]
pub(crate) fn joint_tensors(py: Python<'_>, network: NetworkSource, cut: &str) -> PyResult<String> {
    let Split::Cut(cut) = Split::from(cut) else {
        return Ok("[]".to_owned());
    };
    let found = py.detach(|| Ok(network.read()?.network()?.cut(&cut)?.tensors.clone()));
    let found = found.map_err(|error: GraphError| errors::invalid_settings(py, &error.to_string()))?;
    let tensors = found.into_iter().map(|tensor| TensorInfo {
        dtype: tensor.dtype,
        shape: tensor.shape.dims().to_vec(),
        name: tensor.name,
    });
    let tensors: Vec<TensorInfo> = tensors.collect();
    serde_json::to_string(&tensors).map_err(|error| errors::general(py, &error.to_string()))
}

/// Returns the hash and the default recipe for [`layers`].
fn read_layers(network: NetworkSource, cut: &str) -> Result<(String, Option<PixelSpec>), GraphError> {
    let model = network.read()?;
    let hash = match Split::from(cut) {
        Split::Cut(cut) => model.layers_sha256(&cut)?,
        Split::None | Split::Input => String::new(),
    };
    let network = model.network()?;
    let usual = match (model.metadata("frostline.pixels"), network.input.shape.dims()) {
        // If the metadata are not a recipe, the model expects input that a guest prepares.
        (Some(own), _) => serde_json::from_str(own).ok(),
        (None, [3, height, width]) => {
            let spec = PixelSpec::imagenet(side(*height), side(*width));
            Some(model.input_normalization().map_or(spec, |first| first.raw(spec)))
        }
        (None, _) => None,
    };
    Ok((hash, usual))
}

fn side(pixels: usize) -> u32 {
    u32::try_from(pixels).unwrap_or(u32::MAX)
}
