//! Connections of a stream to hosts.

use crate::settings::{STOCK_GUEST, StreamSettings};
use bytes::Bytes;
use frostline_client::{ClientError, Fetcher, Hosts, Inquiry, InquiryError, RowKind, Source, UploadKind};
use frostline_images::DecodePool;
use frostline_wire::{Split, UploadRef};
use pyo3::exceptions::{PyOSError, PyUserWarning};
use pyo3::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::{Mutex, OnceCell};

/// Connections of a stream in one process.
pub(crate) struct StreamConnections {
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

impl StreamConnections {
    /// Creates the decoders, and prepares the uploads of a stream with these settings. `warning` receives the text of
    /// the warning about the precision of a host.
    pub(crate) fn open(
        settings: &StreamSettings,
        hosts: Hosts,
        warning: Arc<OnceLock<CString>>,
    ) -> PyResult<Self> {
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
        Ok(Self {
            hosts,
            fetcher: Fetcher::new(settings.open_requests, decoders),
            uploads: files.collect(),
            inquiry,
            uploaded: OnceCell::new(),
            sources: Mutex::default(),
            warning,
            is_warned: AtomicBool::new(false),
        })
    }

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
        self.inquiry
            .known_source(Split::from(cut), RowKind::Values, Vec::new())
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
