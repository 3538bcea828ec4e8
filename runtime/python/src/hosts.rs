//! Hosts in Python: listings, uploads, removal and load.

use crate::errors;
use crate::process::{PerProcess, wait};
use crate::settings::{ConnectionSettings, STOCK_GUEST, read};
use bytes::Bytes;
use frostline_client::{ClientError, Notice, Part, SampleFiles, UploadKind};
use frostline_wire::Layout;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An object: key, version, size in bytes, class and part.
type ObjectTuple = (
    String,
    Option<String>,
    u64,
    Option<String>,
    Option<&'static str>,
    Option<u64>,
);

/// An upload: name, SHA-256, size in bytes, and true if all hosts had it already.
type UploadTuple<'a> = (&'a str, String, u64, bool);

/// One or more hosts that serve the same data.
#[pyclass(name = "Hosts", module = "frostline._native", frozen)]
pub(crate) struct PyHosts {
    reach: ConnectionSettings,
    hosts: PerProcess<frostline_client::Hosts>,
    /// Bytes sent of the latest upload to one of the hosts.
    sent: Arc<AtomicU64>,
}

#[pymethods]
impl PyHosts {
    #[new]
    fn new(config: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            reach: read(config, "the hosts' settings")?,
            hosts: PerProcess::empty(),
            sent: Arc::default(),
        })
    }

    /// Lists the samples under a data root in ascending order of keys: (key, etag, size, label, part,
    /// changed).
    fn objects(&self, py: Python<'_>, data: &str, layout: &Bound<'_, PyAny>) -> PyResult<Vec<ObjectTuple>> {
        let layout: Layout = read(layout, "the layout")?;
        let hosts = self.connected(py)?;
        let listed = wait(py, hosts.listing(data, layout))?;
        let listing = listed.map_err(|error| errors::from_client(py, &error))?;
        Ok(py.detach(|| {
            listing
                .placed(SampleFiles::Images)
                .iter()
                .map(|placed| {
                    let object = placed.object;
                    let class = placed.class.map(str::to_owned);
                    let etag = object.etag.map(str::to_owned);
                    (
                        object.key.to_owned(),
                        etag,
                        object.size,
                        class,
                        placed.part.map(Part::name),
                        object.changed,
                    )
                })
                .collect()
        }))
    }

    /// Uploads a model or a guest to every host that does not have these bytes under this name. Returns
    /// (name, sha256, bytes, skipped).
    fn push<'a>(
        &self,
        py: Python<'_>,
        guest: bool,
        name: &'a str,
        content: PyBackedBytes,
    ) -> PyResult<UploadTuple<'a>> {
        let hosts = self.connected(py)?;
        self.sent.store(0, Ordering::Relaxed);
        let pushed = wait(py, hosts.push_once(kind(guest), name, Bytes::from_owner(content)))?;
        let pushed = pushed.map_err(|error| errors::from_client(py, &error))?;
        Ok((name, pushed.sha256, pushed.bytes, pushed.skipped))
    }

    /// Returns the number of bytes of the latest upload that one of the hosts has received.
    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Removes a model or a guest from every host. Returns true if a host had it.
    fn remove(&self, py: Python<'_>, guest: bool, name: &str) -> PyResult<bool> {
        let hosts = self.connected(py)?;
        let removed = wait(py, hosts.remove(kind(guest), name))?;
        removed.map_err(|error| errors::from_client(py, &error))
    }

    /// Queries the load of each host. Returns (address, True, load as JSON) for each host that answered, and
    /// (address, False, message) for each host that failed.
    fn load(&self, py: Python<'_>) -> PyResult<Vec<(String, bool, String)>> {
        let hosts = self.connected(py)?;
        let all = wait(
            py,
            hosts.all(|client| async move {
                let loaded = client.load().await.map_err(|error| error.to_string());
                let written =
                    loaded.and_then(|load| serde_json::to_string(&load).map_err(|error| error.to_string()));
                let answered = written.is_ok();
                let text = written.unwrap_or_else(|error| error);
                Ok((client.url().to_owned(), answered, text))
            }),
        )?;
        Ok(all.into_iter().filter_map(Result::ok).collect())
    }
}

impl PyHosts {
    pub(crate) fn connected(&self, py: Python<'_>) -> PyResult<Arc<frostline_client::Hosts>> {
        if let Some(known) = self.hosts.existing() {
            return Ok(known);
        }
        let counter = Arc::clone(&self.sent);
        let notices = Arc::new(move |notice| {
            if let Notice::Uploading { sent, .. } = notice {
                counter.fetch_max(sent, Ordering::Relaxed);
            }
        });
        let hosts = async { Ok::<_, ClientError>(self.reach.hosts().await?.for_job(notices)) };
        let hosts = wait(py, hosts)?.map_err(|error| errors::from_client(py, &error))?;
        self.hosts.get(py, || Ok(hosts))
    }
}

fn kind(guest: bool) -> UploadKind {
    if guest {
        UploadKind::Guest
    } else {
        UploadKind::Model
    }
}

/// Returns the stock guest's component.
#[pyfunction]
pub(crate) fn stock_guest() -> &'static [u8] {
    STOCK_GUEST
}

/// Returns the name on hosts for these contents. `sha256` is their hash in hex.
#[pyfunction]
pub(crate) fn content_name(stem: &str, sha256: &str) -> String {
    frostline_client::content_name(stem, sha256)
}
