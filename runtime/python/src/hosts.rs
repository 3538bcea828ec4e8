//! Hosts as Python sees them: listings, uploads, loads.

use crate::errors;
use crate::process::{PerProcess, wait};
use crate::settings::{Reach, STOCK_GUEST, read};
use bytes::Bytes;
use frostline_client::{HostClient, Part, Placed, SampleFiles, UploadKind, content_name};
use frostline_wire::Layout;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// What the stock guest is called on hosts, before the digits of its hash.
const STOCK_NAME: &str = "prefix";

/// An object: its key, version, size in bytes, class and part.
type Object = (String, Option<String>, u64, Option<String>, Option<&'static str>);

/// An upload: its name, SHA-256, bytes, and whether hosts had it.
type Pushed = (String, String, u64, bool);

/// What is uploaded, and what it is to be called: by default by its content, after a `stem`.
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
    reach: Reach,
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

    /// The samples under a data root, by ascending key: (key, etag, size, label, part).
    fn objects(&self, py: Python<'_>, data: &str, layout: &Bound<'_, PyAny>) -> PyResult<Vec<Object>> {
        let layout: Layout = read(layout, "the layout")?;
        let hosts = self.of_this_process(py)?;
        let listed = wait(py, hosts.listing(data, layout))?;
        let listing = listed.map_err(|error| errors::of_client(py, &error))?;
        let owned = |placed: &Placed<'_>| {
            let (object, class) = (placed.object, placed.class.map(str::to_owned));
            let etag = object.etag.map(str::to_owned);
            (
                object.key.to_owned(),
                etag,
                object.size,
                class,
                placed.part.map(Part::name),
            )
        };
        Ok(py.detach(|| listing.placed(SampleFiles::Images).iter().map(owned).collect()))
    }

    /// Uploads a model or a guest to every host that has not these bytes: (name, sha256, bytes, skipped).
    fn push(&self, py: Python<'_>, upload: NewUpload, content: PyBackedBytes) -> PyResult<Pushed> {
        self.send(py, upload, Bytes::copy_from_slice(&content))
    }

    /// The same of the stock guest.
    #[pyo3(signature = (name=None))]
    fn push_stock_guest(&self, py: Python<'_>, name: Option<String>) -> PyResult<Pushed> {
        let upload = NewUpload {
            guest: true,
            stem: STOCK_NAME.to_owned(),
            name,
        };
        self.send(py, upload, Bytes::from_static(STOCK_GUEST))
    }

    /// How busy each host is: its address, whether it answered, and its load as JSON or the text of its error.
    fn load(&self, py: Python<'_>) -> PyResult<Vec<(String, bool, String)>> {
        let hosts = self.of_this_process(py)?;
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
    pub(crate) fn of_this_process(&self, py: Python<'_>) -> PyResult<Arc<frostline_client::Hosts>> {
        if let Some(known) = self.hosts.present() {
            return Ok(known);
        }
        let hosts = wait(py, self.reach.hosts())?.map_err(|error| errors::of_client(py, &error))?;
        self.hosts.get(py, || Ok(hosts))
    }

    fn send(&self, py: Python<'_>, upload: NewUpload, bytes: Bytes) -> PyResult<Pushed> {
        let kind = if upload.guest {
            UploadKind::Guest
        } else {
            UploadKind::Model
        };
        let sha256 = py.detach(|| hex::encode(Sha256::digest(&bytes)));
        let name = upload.name.unwrap_or_else(|| content_name(&upload.stem, &sha256));
        let hosts = self.of_this_process(py)?;
        let pushed = wait(py, hosts.push(kind, &name, bytes))?;
        let pushed = pushed.map_err(|error| errors::of_client(py, &error))?;
        Ok((name.clone(), pushed.sha256, pushed.bytes, pushed.skipped))
    }
}
