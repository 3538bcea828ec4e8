//! Features cached on this machine's disk, for later passes and later programs.

use crate::errors;
use crate::process::{PerProcess, wait};
use crate::settings::{FeatureInputs, StreamSettings, read};
use crate::stream::to_object;
use frostline_client::{Hosts, Inquiry};
use frostline_features::{Cache, Provenance, RowKey, RowKeys, Store};
use frostline_graph::{GraphError, Interface, Model};
use frostline_job::{CacheLimit, StatedPixels};
use frostline_tensor::{Data, PixelSpec, Tensor};
use frostline_wire::{ObjectInfo, Split};
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArrayDyn};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OnceCell;

/// Identity and location of cached features.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoreSettings {
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

/// Picklable feature store. `_native.pyi` documents the methods.
#[pyclass(module = "frostline._native", frozen)]
pub(crate) struct Kept {
    settings: StoreSettings,
    open: PerProcess<OpenStore>,
}

/// An open store, used by a single process.
struct OpenStore {
    store: Store,
    /// Hosts that hash files.
    hosts: OnceCell<Hosts>,
    keys: RowKeys,
    /// Reason for the end of writing. Reset by [`OpenStore::take_messages`].
    stop_reason: Arc<Mutex<Option<String>>>,
}

type Array<'py> = Bound<'py, numpy::PyArrayDyn<f32>>;

#[pymethods]
impl Kept {
    #[new]
    fn new(config: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            settings: read(config, "the cache settings")?,
            open: PerProcess::empty(),
        })
    }

    /// Returns true for each sample with cached features. Includes features written by other processes.
    fn has(&self, py: Python<'_>, samples: Vec<Bound<'_, PyAny>>) -> PyResult<Vec<bool>> {
        let open = self.open(py)?;
        // A key depends on the hash of the content, which another process may have recorded.
        py.detach(|| open.store.refresh())
            .map_err(|error| errors::general(py, &error.to_string()))?;
        let keys = open.keys(&samples)?;
        Ok(py.detach(|| open.store.has(&keys)))
    }

    /// Returns cached features and the indices of the corresponding samples.
    fn read<'py>(
        &self,
        py: Python<'py>,
        samples: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<(Array<'py>, Vec<usize>)> {
        let open = self.open(py)?;
        let keys = open.keys(&samples)?;
        let found = py.detach(|| open.store.read(&keys));
        let values = found.rows.map(Tensor::into_data);
        let values = match values {
            Some(Data::F32(values)) => values,
            _ => Vec::new(),
        };
        let mut shape = vec![found.places.len()];
        shape.extend(&self.settings.made.shape);
        Ok((PyArray1::from_vec(py, values).reshape(shape)?, found.places))
    }

    /// Queues the features of these samples for writing. Does not wait for the disk.
    fn keep(
        &self,
        py: Python<'_>,
        samples: Vec<Bound<'_, PyAny>>,
        rows: PyReadonlyArrayDyn<'_, f32>,
    ) -> PyResult<()> {
        let open = self.open(py)?;
        wait(py, open.hash_new(&self.settings.stream, &objects(&samples)?))?;
        let keys = open.keys(&samples)?.into_iter().map(Some).collect();
        let rows = rows.as_array();
        let values = rows.iter().copied().collect();
        let rows = Tensor::f32(rows.shape(), values);
        let rows = rows.map_err(|error| errors::general(py, &error.to_string()))?;
        py.detach(|| open.store.keep(keys, rows));
        Ok(())
    }

    /// Waits until all queued features are written or have failed. Returns messages about problems since the
    /// last call.
    fn settle(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let open = self.open(py)?;
        py.detach(|| open.store.settle());
        Ok(open.take_messages())
    }
}

impl Kept {
    fn open(&self, py: Python<'_>) -> PyResult<Arc<OpenStore>> {
        let make = || OpenStore::new(&self.settings).map_err(|why| errors::general(py, &why));
        self.open.get(py, make)
    }
}

impl OpenStore {
    fn new(settings: &StoreSettings) -> Result<Self, String> {
        let cache = Cache::with_defaults(settings.folder.clone(), settings.limit);
        let cache = cache.ok_or("cannot determine the cache folder or the free disk space; set FROSTLINE_FEATURE_FOLDER and feature_cache=")?;
        let made: Provenance = settings.stream.provenance(&settings.split, &settings.made);
        let (subject, row) = (made.subject(), made.row());
        let stop_reason = Arc::new(Mutex::new(None));
        let told = Arc::clone(&stop_reason);
        let told = move |why| *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        let store = cache.open(&subject, &row, settings.rows, Arc::new(told));
        let mut run = [0; 16];
        getrandom::fill(&mut run).map_err(|error| error.to_string())?;
        Ok(Self {
            store: store.map_err(|error| error.to_string())?,
            hosts: OnceCell::new(),
            keys: RowKeys::new(&subject.data, None, run),
            stop_reason,
        })
    }

    fn keys(&self, samples: &[Bound<'_, PyAny>]) -> PyResult<Vec<RowKey>> {
        let key = |sample: &ObjectInfo| {
            let content = self.store.content(&self.keys, sample);
            self.keys.key_of(&sample.sample, content)
        };
        Ok(objects(samples)?.iter().map(key).collect())
    }

    /// Has the hosts hash the files that changed since their content was last hashed. If no host answers, the
    /// features of these files are found by this process only.
    async fn hash_new(&self, stream: &StreamSettings, samples: &[ObjectInfo]) {
        let new = self.store.unhashed(&self.keys, samples);
        if new.is_empty() {
            return;
        }
        let settings = stream.host_settings();
        let Ok(hosts) = self.hosts.get_or_try_init(|| settings.hosts()).await else {
            return;
        };
        let Inquiry {
            root,
            request_samples,
            ..
        } = stream.inquiry();
        let hashes = hosts.digests(&root, &new, request_samples).await;
        self.store.record_contents(&self.keys, &new, &hashes);
    }

    fn take_messages(&self) -> Vec<String> {
        let stopped = self
            .stop_reason
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        stopped.into_iter().chain(self.store.take_warnings()).collect()
    }
}

fn objects(samples: &[Bound<'_, PyAny>]) -> PyResult<Vec<ObjectInfo>> {
    samples.iter().map(|sample| to_object(sample, 0)).collect()
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
    let read = || Model::read_as(file, &interface)?.to_bytes();
    py.detach(read)
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
pub(crate) enum Network {
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
pub(crate) fn layers(py: Python<'_>, network: Network, cut: &str) -> PyResult<(String, String)> {
    let read = || -> Result<_, GraphError> {
        let model = match network {
            Network::Bytes(bytes) => Model::from_bytes(bytes::Bytes::from_owner(bytes))?,
            Network::File(file) => Model::read(file)?,
        };
        let hash = match Split::from(cut) {
            Split::Cut(cut) => model.layers_sha256(&cut)?,
            Split::None | Split::Input => String::new(),
        };
        let side = |side: &usize| u32::try_from(*side).unwrap_or(u32::MAX);
        let network = model.network()?;
        let usual = match (model.metadata("frostline.pixels"), network.input.shape.dims()) {
            // If the metadata are not a recipe, the model expects input that a guest prepares.
            (Some(own), _) => serde_json::from_str(own).ok(),
            (None, [3, height, width]) => {
                let spec = PixelSpec::imagenet(side(height), side(width));
                Some(model.input_normalization().map_or(spec, |first| first.raw(spec)))
            }
            (None, _) => None,
        };
        Ok((hash, usual))
    };
    let (hash, usual) = py
        .detach(read)
        .map_err(|error| errors::invalid_settings(py, &error.to_string()))?;
    let usual = usual.and_then(|spec| serde_json::to_string(&spec).ok());
    Ok((hash, usual.unwrap_or_default()))
}
