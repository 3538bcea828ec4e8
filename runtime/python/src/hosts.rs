//! Hosts in Python: listings, uploads and load.

use crate::errors;
use crate::process::{PerProcess, wait};
use crate::settings::{HostSettings, STOCK_GUEST, read};
use bytes::Bytes;
use frostline_client::{HostClient, Part, Placed, SampleFiles, UploadKind, content_name};
use frostline_wire::Layout;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Name of the stock guest on hosts. [`content_name`] appends digits of the hash.
const STOCK_NAME: &str = "prefix";

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
type UploadTuple = (String, String, u64, bool);

/// A new upload. If `name` is missing, the name is `stem` with the first digits of the hash.
#[derive(FromPyObject)]
struct NewUpload {
    #[pyo3(item)]
    guest: bool,
    #[pyo3(item)]
    stem: String,
    #[pyo3(item)]
    name: Option<String>,
}

/// One or more hosts that serve the same data.
#[pyclass(module = "frostline._native", frozen)]
pub(crate) struct Hosts {
    reach: HostSettings,
    hosts: PerProcess<frostline_client::Hosts>,
}

#[pymethods]
impl Hosts {
    #[new]
    fn new(config: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            reach: read(config, "the hosts' settings")?,
            hosts: PerProcess::empty(),
        })
    }

    /// Lists the samples under a data root in ascending order of keys: (key, etag, size, label, part,
    /// changed).
    fn objects(&self, py: Python<'_>, data: &str, layout: &Bound<'_, PyAny>) -> PyResult<Vec<ObjectTuple>> {
        let layout: Layout = read(layout, "the layout")?;
        let hosts = self.connected(py)?;
        let listed = wait(py, hosts.listing(data, layout))?;
        let listing = listed.map_err(|error| errors::from_client(py, &error))?;
        let owned = |placed: &Placed<'_>| {
            let (object, class) = (placed.object, placed.class.map(str::to_owned));
            let etag = object.etag.map(str::to_owned);
            (
                object.key.to_owned(),
                etag,
                object.size,
                class,
                placed.part.map(Part::name),
                object.changed,
            )
        };
        Ok(py.detach(|| listing.placed(SampleFiles::Images).iter().map(owned).collect()))
    }

    /// Uploads a model or a guest to every host that does not have these bytes under this name. Returns
    /// (name, sha256, bytes, skipped).
    fn push(&self, py: Python<'_>, upload: NewUpload, content: PyBackedBytes) -> PyResult<UploadTuple> {
        self.send(py, upload, Bytes::copy_from_slice(&content))
    }

    /// Uploads the stock guest in the same way as `push`.
    #[pyo3(signature = (name=None))]
    fn push_stock_guest(&self, py: Python<'_>, name: Option<String>) -> PyResult<UploadTuple> {
        let upload = NewUpload {
            guest: true,
            stem: STOCK_NAME.to_owned(),
            name,
        };
        self.send(py, upload, Bytes::from_static(STOCK_GUEST))
    }

    /// Queries the load of each host. Returns (address, True, load as JSON) for each host that answered, and
    /// (address, False, message) for each host that failed.
    fn load(&self, py: Python<'_>) -> PyResult<Vec<(String, bool, String)>> {
        let hosts = self.connected(py)?;
        let ask = |client: HostClient| async move {
            let loaded = client.load().await.map_err(|error| error.to_string());
            let written =
                loaded.and_then(|load| serde_json::to_string(&load).map_err(|error| error.to_string()));
            let answered = written.is_ok();
            let text = written.unwrap_or_else(|error| error);
            Ok((client.url().to_owned(), answered, text))
        };
        let all = wait(py, hosts.all(ask))?;
        Ok(all.into_iter().filter_map(Result::ok).collect())
    }
}

impl Hosts {
    pub(crate) fn connected(&self, py: Python<'_>) -> PyResult<Arc<frostline_client::Hosts>> {
        if let Some(known) = self.hosts.existing() {
            return Ok(known);
        }
        let hosts = wait(py, self.reach.hosts())?.map_err(|error| errors::from_client(py, &error))?;
        self.hosts.get(py, || Ok(hosts))
    }

    fn send(&self, py: Python<'_>, upload: NewUpload, bytes: Bytes) -> PyResult<UploadTuple> {
        let kind = if upload.guest {
            UploadKind::Guest
        } else {
            UploadKind::Model
        };
        let sha256 = py.detach(|| hex::encode(Sha256::digest(&bytes)));
        let name = upload.name.unwrap_or_else(|| content_name(&upload.stem, &sha256));
        let hosts = self.connected(py)?;
        let pushed = wait(py, hosts.push(kind, &name, bytes))?;
        let pushed = pushed.map_err(|error| errors::from_client(py, &error))?;
        Ok((name.clone(), pushed.sha256, pushed.bytes, pushed.skipped))
    }
}
