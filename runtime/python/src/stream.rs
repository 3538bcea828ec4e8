//! Source of activations at a cut. Supports any number of passes over any samples.

use crate::errors;
use crate::features::FeatureCache;
use crate::process::{PerProcess, wait};
use crate::rows::{PassRequest, Rows};
use crate::settings::{STOCK_GUEST, StreamSettings, read};
use bytes::Bytes;
use frostline_client::{
    ClientError, Fetcher, Hosts, Inquiry, InquiryError, Notice, RowKind, Source, UploadKind,
};
use frostline_images::DecodePool;
use frostline_rows::PrefetchLimits;
use frostline_tensor::SampleRef;
use frostline_wire::{ObjectInfo, Split, UploadRef};
use pyo3::exceptions::{PyOSError, PyUserWarning};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::{Mutex, OnceCell};

/// Size in bytes assumed for an object of unknown size at the cut `none`, to limit the memory of prefetched
/// batches.
const ASSUMED_OBJECT_BYTES: u64 = 64 << 20;

/// Picklable source of activations. `_native.pyi` documents the methods.
#[pyclass(module = "frostline._native", frozen)]
pub(crate) struct Stream {
    /// Settings as passed by the caller, for pickling.
    config: Py<PyAny>,
    settings: StreamSettings,
    live: PerProcess<Connections>,
}

/// Connections of a stream in one process.
pub(crate) struct Connections {
    pub(crate) hosts: Hosts,
    pub(crate) fetcher: Fetcher,
    inquiry: Inquiry,
    /// Uploads to send again if a host loses them, and local files.
    uploads: Vec<(UploadKind, UploadRef, Option<PathBuf>)>,
    uploaded: OnceCell<()>,
    /// Sources by cut.
    sources: Mutex<HashMap<String, Source>>,
    /// Text of the warning about the precision of a host. Emitted by the thread that holds the GIL.
    warning: Arc<OnceLock<CString>>,
    is_warned: AtomicBool,
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
        let live = self.live(py)?;
        let source = wait(py, live.source(cut))?;
        source
            .map(|source| source.shape)
            .map_err(|error| errors::from_inquiry(py, &error))
    }
}

impl Stream {
    fn live(&self, py: Python<'_>) -> PyResult<Arc<Connections>> {
        if let Some(live) = self.live.existing() {
            return Ok(live);
        }
        let settings = &self.settings;
        let reach = settings.host_settings();
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
        self.live.get(py, || {
            let threads = settings
                .threads
                .or_else(|| Some(std::thread::available_parallelism().ok()?.get()));
            let decoders = DecodePool::start(threads.unwrap_or(1))
                .map_err(|error| PyOSError::new_err(format!("cannot start threads: {error}")))?;
            let inquiry = settings.inquiry();
            let files = [
                (
                    UploadKind::Model,
                    inquiry.model.clone(),
                    settings.model_file.clone(),
                ),
                (
                    UploadKind::Guest,
                    inquiry.guest.clone(),
                    settings.guest_file.clone(),
                ),
            ];
            let files = files
                .into_iter()
                .filter_map(|(kind, pin, file)| Some((kind, pin?, file)));
            Ok(Connections {
                hosts,
                fetcher: Fetcher::new(settings.open_requests, decoders),
                uploads: files.collect(),
                inquiry,
                uploaded: OnceCell::new(),
                sources: Mutex::default(),
                warning,
                is_warned: AtomicBool::new(false),
            })
        })
    }
}

impl Connections {
    /// Returns the source of activations at `cut`. Hosts are asked once for each cut. The first call also
    /// provides the uploads that hosts may need again.
    pub(crate) async fn source(&self, cut: &str) -> Result<Source, InquiryError> {
        self.uploaded.get_or_try_init(|| self.upload_files()).await?;
        let mut sources = self.sources.lock().await;
        if let Some(source) = sources.get(cut) {
            return Ok(source.clone());
        }
        let source = self.inquiry.source(&self.hosts, Split::from(cut)).await?;
        sources.insert(cut.to_owned(), source.clone());
        Ok(source)
    }

    /// Returns a source for cached rows, without asking a host for the shape.
    pub(crate) fn cached_source(&self, cut: &str) -> Source {
        let Inquiry {
            root,
            guest,
            model,
            parameters,
            encoding,
            terms,
            request_samples,
        } = self.inquiry.clone();
        Source {
            root,
            split: Split::from(cut),
            encoding,
            guest,
            model,
            parameters,
            terms,
            view: None,
            rows: RowKind::Values,
            shape: Vec::new(),
            request_samples,
        }
    }

    /// Emits the warning about the precision of a host once, with Python's `warnings` module.
    pub(crate) fn warn(&self, py: Python<'_>) -> PyResult<()> {
        match self.warning.get() {
            Some(text) if !self.is_warned.swap(true, Ordering::Relaxed) => {
                PyErr::warn(py, &py.get_type::<PyUserWarning>(), text, 1)
            }
            _ => Ok(()),
        }
    }

    async fn upload_files(&self) -> Result<(), InquiryError> {
        for (kind, pin, file) in &self.uploads {
            if let Some(bytes) = upload_content(*kind, pin, file.clone()).await? {
                self.hosts.push(*kind, &pin.name, bytes).await?;
            }
        }
        Ok(())
    }
}

/// Returns the content of an upload if it is available locally, either as a file or as the stock guest.
#[expect(clippy::disallowed_methods, reason = "clients have no tenants")]
async fn upload_content(
    kind: UploadKind,
    pin: &UploadRef,
    file: Option<PathBuf>,
) -> Result<Option<Bytes>, InquiryError> {
    let asked = file.clone();
    let wanted = pin.sha256.clone();
    let read = tokio::task::spawn_blocking(move || read_upload(kind, asked.as_deref(), &wanted)).await;
    let read = read.map_err(|_| ClientError::Ended {
        part: "reading of a file",
    })?;
    let what = match read {
        Ok(Some((bytes, true))) => return Ok(Some(bytes)),
        Ok(Some(_)) if file.is_some() => {
            "the content has changed since the upload; push the file again".to_owned()
        }
        Ok(_) => return Ok(None),
        Err(error) => error.to_string(),
    };
    Err(InquiryError::Wrong(format!(
        "the file {} of the {kind} {}: {what}",
        file.unwrap_or_default().display(),
        pin.name
    )))
}

/// Returns the content of `file` or of the stock guest, and whether it has the hash `sha256`.
fn read_upload(kind: UploadKind, file: Option<&Path>, sha256: &str) -> io::Result<Option<(Bytes, bool)>> {
    let bytes = match file {
        Some(file) => Bytes::from(std::fs::read(file)?),
        None if kind == UploadKind::Guest => Bytes::from_static(STOCK_GUEST),
        None => return Ok(None),
    };
    let same = hex::encode(Sha256::digest(&bytes)) == sha256;
    Ok(Some((bytes, same)))
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
