//! Rows that are kept on this machine's disk, from one pass to the next and from one program to the next.

use crate::errors;
use crate::process::PerProcess;
use crate::settings::{Made, StreamSettings, read};
use crate::stream::sample;
use frostline_features::{Cache, Provenance, RowKey, RowKeys, Store};
use frostline_graph::{GraphError, Model};
use frostline_job::{CacheLimit, StatedPixels};
use frostline_tensor::{Data, PixelSpec, Tensor};
use frostline_wire::Split;
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArrayDyn};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// What is kept, and where.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptSettings {
    /// The user's own where there is none.
    folder: Option<PathBuf>,
    /// Bytes; half of what the disk has free where there are none.
    limit: Option<u64>,
    /// How rows come.
    stream: StreamSettings,
    /// From where.
    split: Split,
    made: Made,
    /// How many there will be, so that there is room for them.
    rows: u64,
}

/// A store of rows, as a setting; see `_native.pyi`.
#[pyclass(module = "frostline._native", frozen)]
pub(crate) struct Kept {
    settings: KeptSettings,
    open: PerProcess<Open>,
}

/// What it is in one process.
struct Open {
    store: Store,
    keys: RowKeys,
    /// Why no more rows are written.
    stopped: Arc<Mutex<Option<String>>>,
}

type Array<'py> = Bound<'py, numpy::PyArrayDyn<f32>>;

#[pymethods]
impl Kept {
    #[new]
    fn new(config: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            settings: read(config, "what is kept")?,
            open: PerProcess::empty(),
        })
    }

    /// Which of these samples have a row, those that others kept meanwhile among them.
    fn has(&self, py: Python<'_>, samples: Vec<Bound<'_, PyAny>>) -> PyResult<Vec<bool>> {
        let open = self.open(py)?;
        let keys = open.keys(&samples)?;
        let has = py.detach(|| open.store.refresh().map(|()| open.store.has(&keys)));
        has.map_err(|error| errors::other(py, &error.to_string()))
    }

    /// Their rows, and which of them these are.
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

    /// Keeps the rows of these samples. Does not wait for the disk.
    fn keep(
        &self,
        py: Python<'_>,
        samples: Vec<Bound<'_, PyAny>>,
        rows: PyReadonlyArrayDyn<'_, f32>,
    ) -> PyResult<()> {
        let open = self.open(py)?;
        let keys = open.keys(&samples)?.into_iter().map(Some).collect();
        let rows = rows.as_array();
        let values = rows.iter().copied().collect();
        let rows = Tensor::f32(rows.shape(), values);
        let rows = rows.map_err(|error| errors::other(py, &error.to_string()))?;
        py.detach(|| open.store.keep(keys, rows));
        Ok(())
    }

    /// Waits until what was kept is written, or cannot be; returns what there is to tell of that, each once.
    fn settle(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let open = self.open(py)?;
        py.detach(|| open.store.settle());
        Ok(open.news())
    }
}

impl Kept {
    fn open(&self, py: Python<'_>) -> PyResult<Arc<Open>> {
        let make = || Open::new(&self.settings).map_err(|why| errors::other(py, &why));
        self.open.get(py, make)
    }
}

impl Open {
    fn new(settings: &KeptSettings) -> Result<Self, String> {
        let cache = Cache::within(settings.folder.clone(), settings.limit);
        let cache = cache.ok_or("nobody can tell where, or what the disk has free")?;
        let made: Provenance = settings.stream.provenance(&settings.split, &settings.made);
        let (subject, row) = (made.subject(), made.row());
        let stopped = Arc::new(Mutex::new(None));
        let told = Arc::clone(&stopped);
        let told = move |why| *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        let store = cache.open(&subject, &row, settings.rows, Arc::new(told));
        let mut run = [0; 16];
        getrandom::fill(&mut run).map_err(|error| error.to_string())?;
        Ok(Self {
            store: store.map_err(|error| error.to_string())?,
            keys: RowKeys::new(&subject.data, None, run),
            stopped,
        })
    }

    fn keys(&self, samples: &[Bound<'_, PyAny>]) -> PyResult<Vec<RowKey>> {
        let key = |asked| Ok(self.keys.key_of(&sample(asked, 0)?.sample));
        samples.iter().map(key).collect()
    }

    fn news(&self) -> Vec<String> {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner).take();
        stopped.into_iter().chain(self.store.news()).collect()
    }
}

/// Bytes that a word such as `4GiB` allows; none for `off`.
#[pyfunction]
pub(crate) fn feature_limit(py: Python<'_>, word: &str) -> PyResult<Option<u64>> {
    match word.parse() {
        Ok(CacheLimit::Off) => Ok(None),
        Ok(CacheLimit::Bytes(bytes)) => Ok(Some(bytes)),
        Err(why) => Err(errors::settings(py, &format!("feature_cache: {why}"))),
    }
}

/// The recipe that a configuration of timm or transformers states, as JSON.
#[pyfunction]
pub(crate) fn stated_pixels(py: Python<'_>, config: &str) -> PyResult<String> {
    let stated =
        StatedPixels::from_json(config).map_err(|why| errors::settings(py, &format!("pixels: {why}")))?;
    Ok(stated.to_string())
}

/// A network's file, or its bytes.
#[derive(FromPyObject)]
pub(crate) enum Network {
    #[pyo3(transparent)]
    Bytes(PyBackedBytes),
    #[pyo3(transparent)]
    File(PathBuf),
}

/// What rows at `cut` depend on of a network: a hash of the layers before it, and the recipe for its input where
/// nobody says one: the model's own, else ImageNet's; empty where only a guest can make it.
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
            // Where it is no recipe, a guest made the input in its own way.
            (Some(own), _) => serde_json::from_str(own).ok(),
            (None, [3, height, width]) => Some(PixelSpec::imagenet(side(height), side(width))),
            (None, _) => None,
        };
        Ok((hash, usual))
    };
    let (hash, usual) = py
        .detach(read)
        .map_err(|error| errors::settings(py, &error.to_string()))?;
    let usual = usual.and_then(|spec| serde_json::to_string(&spec).ok());
    Ok((hash, usual.unwrap_or_default()))
}
