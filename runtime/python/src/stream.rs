//! Source of activations at a cut. Supports any number of passes over any samples.

use crate::connections::StreamConnections;
use crate::errors;
use crate::features::FeatureCache;
use crate::process::{PerProcess, wait};
use crate::rows::{PassRequest, Rows};
use crate::settings::{StreamSettings, read};
use frostline_client::{ClientError, Notice, Source};
use frostline_rows::PrefetchLimits;
use frostline_tensor::SampleRef;
use frostline_wire::ObjectInfo;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use std::ffi::CString;
use std::sync::{Arc, OnceLock};

/// Size in bytes assumed for an object of unknown size at the cut `none`, to limit the memory of prefetched
/// batches.
const ASSUMED_OBJECT_BYTES: u64 = 64 << 20;

/// Picklable source of activations. `_native.pyi` documents the methods.
#[pyclass(module = "frostline._native", frozen)]
pub(crate) struct Stream {
    /// Settings as passed by the caller, for pickling.
    config: Py<PyAny>,
    settings: StreamSettings,
    live: PerProcess<StreamConnections>,
}

#[pymethods]
impl Stream {
    #[new]
    fn new(config: &Bound<'_, PyAny>) -> PyResult<Self> {
        let settings: StreamSettings = read(config, "the stream's settings")?;
        if settings.open_requests == 0 {
            return Err(errors::invalid_settings(
                config.py(),
                "open_requests must be at least 1",
            ));
        }
        Ok(Self {
            config: config.call_method0("copy")?.unbind(),
            settings,
            live: PerProcess::empty(),
        })
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyAny>, (Py<PyAny>,)) {
        let py = slf.py();
        (slf.get_type().into_any(), (slf.get().config.clone_ref(py),))
    }

    /// Returns the activations of `keys` at `cut` in batches of `batch` samples, or those that `middle` computes
    /// from them.
    #[pyo3(signature = (keys, cut, batch, *, view=None, cache=None, middle=None))]
    fn rows(
        slf: &Bound<'_, Self>,
        keys: Vec<Bound<'_, PyAny>>,
        cut: &str,
        batch: usize,
        view: Option<Bound<'_, PyAny>>,
        cache: Option<Bound<'_, FeatureCache>>,
        middle: Option<Py<PyAny>>,
    ) -> PyResult<Rows> {
        let py = slf.py();
        let stream = slf.get();
        let view = view.map(|view| read(&view, "the view")).transpose()?;
        let unknown = if cut == "none" { ASSUMED_OBJECT_BYTES } else { 0 };
        let samples = keys.iter().map(|key| to_object(key, unknown));
        let samples = samples.collect::<PyResult<Vec<_>>>()?;
        if batch == 0 {
            return Err(errors::invalid_settings(py, "the batch size must be at least 1"));
        }
        let batches = samples.chunks(batch).map(Arc::from).collect();
        let live = stream.live(py)?;
        let cache = cache.map(|cache| cache.get().open(py)).transpose()?;
        let ahead = PrefetchLimits {
            batches: stream.settings.ahead,
            bytes: stream.settings.memory,
        };
        Ok(Rows::new(PassRequest {
            live,
            cut: cut.to_owned(),
            view,
            ahead,
            batches,
            cache: cache.map(|open| Arc::clone(&open.rows)),
            middle,
            offline: true,
        }))
    }

    /// Returns the shape of a sample's activations at `cut`.
    fn shape(&self, py: Python<'_>, cut: &str) -> PyResult<Vec<usize>> {
        Ok(self.source(py, cut)?.shape)
    }

    /// Returns the names, types and shapes of the tensors that a row at `cut` concatenates.
    fn tensors(&self, py: Python<'_>, cut: &str) -> PyResult<Vec<(String, String, Vec<usize>)>> {
        let tensors = self.source(py, cut)?.tensors.into_iter();
        Ok(tensors
            .map(|tensor| (tensor.name, tensor.dtype.to_string(), tensor.shape))
            .collect())
    }
}

impl Stream {
    fn source(&self, py: Python<'_>, cut: &str) -> PyResult<Source> {
        let live = self.live(py)?;
        wait(py, live.source(cut))?.map_err(|error| errors::from_inquiry(py, &error))
    }

    fn live(&self, py: Python<'_>) -> PyResult<Arc<StreamConnections>> {
        if let Some(live) = self.live.existing() {
            return Ok(live);
        }
        let settings = &self.settings;
        let reach = settings.connection_settings();
        // Jobs follow changes of the addresses of a DNS name.
        let warning = Arc::<OnceLock<CString>>::default();
        let pending = Arc::clone(&warning);
        let notices = Arc::new(move |notice| {
            if let Notice::Precision { host, permitted, .. } = notice {
                let text = Notice::precision_text(&format!("host {host}"), permitted);
                pending.get_or_init(|| CString::new(text).unwrap_or_default());
            }
        });
        let hosts = async { Ok::<_, ClientError>(reach.hosts().await?.for_job(notices)) };
        let hosts = wait(py, hosts)?.map_err(|error| errors::from_client(py, &error))?;
        self.live
            .get(py, || StreamConnections::open(settings, hosts, warning))
    }
}

/// Converts a requested sample: a key, (key, etag), or a `frostline.Object`, which includes the size and the time
/// of the last change.
/// `unknown` is used if the size is missing.
pub(crate) fn to_object(asked: &Bound<'_, PyAny>, unknown: u64) -> PyResult<ObjectInfo> {
    if let Ok(key) = asked.cast::<PyString>() {
        return Ok(ObjectInfo {
            sample: SampleRef::new(key.to_str()?),
            size: unknown,
            label: None,
            changed: None,
        });
    }
    let parts = asked.cast::<PyTuple>()?;
    let size = parts.get_item(2).and_then(|size| size.extract());
    let changed = parts.get_item(5).and_then(|changed| changed.extract());
    Ok(ObjectInfo {
        sample: SampleRef {
            key: parts.get_item(0)?.extract()?,
            etag: parts.get_item(1)?.extract()?,
        },
        size: size.unwrap_or(unknown),
        label: None,
        changed: changed.unwrap_or_default(),
    })
}
