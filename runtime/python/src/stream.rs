//! Rows at a cut, for any number of passes over any samples.

use crate::errors;
use crate::process::{PerProcess, wait};
use crate::rows::{Asked, Rows};
use crate::settings::{STOCK_GUEST, StreamSettings, read};
use bytes::Bytes;
use frostline_client::{Ahead, ClientError, Fetcher, Hosts, Inquiry, InquiryError, Source, UploadKind};
use frostline_images::DecodePool;
use frostline_tensor::SampleRef;
use frostline_wire::{ObjectInfo, Pin, Split};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{Mutex, OnceCell};

/// What an object of unknown size is taken to have where objects travel: the most that hosts read of one.
const UNKNOWN: u64 = 64 << 20;

/// A source of rows, as a picklable setting; see `_native.pyi`.
#[pyclass(module = "frostline._native", frozen)]
pub(crate) struct Stream {
    /// As it was given, to be pickled.
    config: Py<PyAny>,
    settings: StreamSettings,
    live: PerProcess<Live>,
}

/// What a stream is in one process.
pub(crate) struct Live {
    pub(crate) hosts: Hosts,
    pub(crate) fetcher: Fetcher,
    inquiry: Inquiry,
    /// What hosts are given again that come back without it.
    files: Vec<(UploadKind, Pin, Option<PathBuf>)>,
    given: OnceCell<()>,
    /// What to ask for, by cut.
    sources: Mutex<HashMap<String, Source>>,
}

#[pymethods]
impl Stream {
    #[new]
    fn new(config: &Bound<'_, PyAny>) -> PyResult<Self> {
        let settings: StreamSettings = read(config, "the stream's settings")?;
        if settings.open_requests == 0 {
            return Err(errors::settings(config.py(), "open_requests must be at least 1"));
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

    /// Rows of `keys` at `cut`, `batch` at a time, or as many in each batch as it says.
    #[pyo3(signature = (keys, cut, batch, *, view=None))]
    fn rows(
        slf: &Bound<'_, Self>,
        keys: Vec<Bound<'_, PyAny>>,
        cut: &str,
        batch: Batches,
        view: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Rows> {
        let (py, stream) = (slf.py(), slf.get());
        let view = view.map(|view| read(&view, "the view")).transpose()?;
        let unknown = if cut == "none" { UNKNOWN } else { 0 };
        let samples = keys.iter().map(|key| sample(key, unknown));
        let samples = samples.collect::<PyResult<Vec<_>>>()?;
        let batches = batch.divide(samples).map_err(|why| errors::settings(py, &why))?;
        let live = stream.live(py)?;
        let ahead = Ahead {
            batches: stream.settings.ahead,
            bytes: stream.settings.memory,
        };
        Ok(Rows::new(Asked {
            live,
            cut: cut.to_owned(),
            view,
            ahead,
            batches,
        }))
    }

    /// The shape of one sample at `cut`.
    fn shape(&self, py: Python<'_>, cut: &str) -> PyResult<Vec<usize>> {
        let live = self.live(py)?;
        let source = wait(py, live.source(cut))?;
        source
            .map(|source| source.shape)
            .map_err(|error| errors::of_inquiry(py, &error))
    }
}

impl Stream {
    fn live(&self, py: Python<'_>) -> PyResult<Arc<Live>> {
        if let Some(live) = self.live.present() {
            return Ok(live);
        }
        let settings = &self.settings;
        let reach = settings.reach();
        // Of a job, which follows hosts that come and go.
        let hosts = async { Ok::<_, ClientError>(reach.hosts().await?.for_job(Arc::new(|_| ()))) };
        let hosts = wait(py, hosts)?.map_err(|error| errors::of_client(py, &error))?;
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
            Ok(Live {
                hosts,
                fetcher: Fetcher::new(settings.open_requests, decoders),
                files: files.collect(),
                inquiry,
                given: OnceCell::new(),
                sources: Mutex::default(),
            })
        })
    }
}

/// How samples are divided into batches.
#[derive(FromPyObject)]
enum Batches {
    #[pyo3(transparent)]
    Each(usize),
    #[pyo3(transparent)]
    Sizes(Vec<usize>),
}

impl Batches {
    fn divide(&self, samples: Vec<ObjectInfo>) -> Result<VecDeque<Arc<[ObjectInfo]>>, String> {
        match self {
            Self::Each(0) => Err("a batch has at least one row, and 0 is asked for".to_owned()),
            Self::Each(size) => Ok(samples.chunks(*size).map(Arc::from).collect()),
            Self::Sizes(sizes) => {
                let count = samples.len();
                let mut samples = samples.into_iter();
                let batches = sizes.iter().map(|size| samples.by_ref().take(*size).collect());
                let batches: VecDeque<Arc<[ObjectInfo]>> = batches.collect();
                let whole = batches
                    .iter()
                    .zip(sizes)
                    .all(|(batch, size)| batch.len() == *size && *size > 0);
                if !whole || samples.next().is_some() {
                    return Err(format!("batches of {sizes:?} rows are none of {count} samples"));
                }
                Ok(batches)
            }
        }
    }
}

impl Live {
    /// What to ask for at `cut`; hosts are asked once, and given what they may come to lack.
    pub(crate) async fn source(&self, cut: &str) -> Result<Source, InquiryError> {
        self.given.get_or_try_init(|| self.give()).await?;
        let mut sources = self.sources.lock().await;
        if let Some(source) = sources.get(cut) {
            return Ok(source.clone());
        }
        let source = self.inquiry.source(&self.hosts, Split::from(cut)).await?;
        sources.insert(cut.to_owned(), source.clone());
        Ok(source)
    }

    async fn give(&self) -> Result<(), InquiryError> {
        for (kind, pin, file) in &self.files {
            if let Some(bytes) = content(*kind, pin, file.clone()).await? {
                self.hosts.push(*kind, &pin.name, bytes).await?;
            }
        }
        Ok(())
    }
}

/// The bytes of an upload, where they are here: in a file, or the stock guest's.
async fn content(kind: UploadKind, pin: &Pin, file: Option<PathBuf>) -> Result<Option<Bytes>, InquiryError> {
    let (asked, wanted) = (file.clone(), pin.sha256.clone());
    let read = move || {
        let bytes = match &file {
            Some(file) => Bytes::from(std::fs::read(file)?),
            None if kind == UploadKind::Guest => Bytes::from_static(STOCK_GUEST),
            None => return Ok(None),
        };
        let same = hex::encode(Sha256::digest(&bytes)) == wanted;
        Ok::<_, std::io::Error>(Some((bytes, same)))
    };
    let named = |what: String| {
        let file = asked.clone().unwrap_or_default();
        InquiryError::Wrong(format!(
            "the file {} of the {kind} {}: {what}",
            file.display(),
            pin.name
        ))
    };
    let read = tokio::task::spawn_blocking(read).await;
    let read = read.map_err(|_| ClientError::Ended {
        part: "reading of a file",
    })?;
    match read.map_err(|error| named(error.to_string()))? {
        Some((bytes, true)) => Ok(Some(bytes)),
        Some(_) if asked.is_some() => Err(named("it is not what was uploaded; push it again".to_owned())),
        _ => Ok(None),
    }
}

/// A sample as it is asked for: a key, (key, etag), or a `frostline.Object`, which also knows its size.
pub(crate) fn sample(asked: &Bound<'_, PyAny>, unknown: u64) -> PyResult<ObjectInfo> {
    if let Ok(key) = asked.cast::<PyString>() {
        return Ok(ObjectInfo {
            sample: SampleRef::new(key.to_str()?),
            size: unknown,
            label: None,
        });
    }
    let parts = asked.cast::<PyTuple>()?;
    let size = parts.get_item(2).and_then(|size| size.extract());
    Ok(ObjectInfo {
        sample: SampleRef {
            key: parts.get_item(0)?.extract()?,
            etag: parts.get_item(1)?.extract()?,
        },
        size: size.unwrap_or(unknown),
        label: None,
    })
}
