//! Samples of a task as `frostline train` divides them, and the order of an epoch.

use crate::errors;
use crate::hosts::Hosts;
use crate::process::wait;
use crate::settings::read;
use bytes::Bytes;
use frostline_client::{
    ClientError, Dataset, DatasetError, Division, HostClient, LabelTable, Listing, Purpose, SampleFiles,
    Samples, Task, order,
};
use frostline_wire::{Layout, ObjectInfo};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Where labels come from, and how samples are divided.
#[derive(FromPyObject)]
pub(crate) struct Wanted<'py> {
    #[pyo3(item)]
    layout: Bound<'py, PyAny>,
    #[pyo3(item)]
    labels: Option<PathBuf>,
    #[pyo3(item)]
    task: String,
    #[pyo3(item)]
    validation: Option<f64>,
    #[pyo3(item)]
    seed: u64,
    #[pyo3(item)]
    any_files: bool,
}

/// `hosts`' samples under `root`: a dictionary of `classes`, `left_out` (how many objects, the keys of the first), `train`, `validation` and `test`;
/// see `_native.pyi`.
#[pyfunction]
pub(crate) fn dataset<'py>(
    py: Python<'py>,
    hosts: &Hosts,
    root: &str,
    wanted: Wanted<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    let layout: Layout = read(&wanted.layout, "the layout")?;
    let task = wanted.task(py)?;
    let hosts = hosts.of_this_process(py)?;
    let listing = wait(py, hosts.listing(root, layout))?.map_err(|error| errors::of_client(py, &error))?;
    let table = match &wanted.labels {
        Some(file) => Some((file.display().to_string(), local(py, file)?)),
        None => beside(py, &hosts, root, &listing)?,
    };
    if table.is_none() && task == Task::Numbers {
        let what = format!("{root} has no labels.csv, and labels= names none: numbers come from a table");
        return Err(errors::settings(py, &what));
    }
    let division = wanted.division();
    let divided = py.detach(|| match table {
        None => Dataset::from_listing(root, listing, division),
        Some((name, bytes)) => LabelTable::parse(&name, &bytes, task)
            .map_err(DatasetError::from)
            .and_then(|table| Dataset::from_table(root, listing, table, division)),
    });
    let divided = divided.map_err(|error| errors::settings(py, &error.to_string()))?;
    let found = PyDict::new(py);
    found.set_item("train", part(py, &divided.train)?)?;
    found.set_item("validation", part(py, &divided.validation)?)?;
    found.set_item("test", part(py, &divided.test)?)?;
    found.set_item("left_out", (divided.left_out.objects, divided.left_out.first))?;
    let warnings: Vec<String> = divided.one_sided.iter().map(ToString::to_string).collect();
    found.set_item("warnings", warnings)?;
    found.set_item("classes", divided.classes)?;
    Ok(found)
}

impl Wanted<'_> {
    fn task(&self, py: Python<'_>) -> PyResult<Task> {
        match self.task.as_str() {
            "classes" => Ok(Task::Classes),
            "labels" => Ok(Task::Labels),
            "numbers" => Ok(Task::Numbers),
            other => {
                let what = format!("the task is {other:?}; it is one of classes, labels and numbers");
                Err(errors::settings(py, &what))
            }
        }
    }

    fn division(&self) -> Division {
        Division {
            validation_share: self.validation,
            seed: self.seed,
            files: if self.any_files {
                SampleFiles::All
            } else {
                SampleFiles::Images
            },
        }
    }
}

/// The labels table beside the data and its bytes, where there is one.
fn beside(
    py: Python<'_>,
    hosts: &frostline_client::Hosts,
    root: &str,
    listing: &Listing,
) -> PyResult<Option<(String, Bytes)>> {
    let mut objects = listing.iter().map(|(_, object)| object);
    let Some(object) = objects.find(|object| object.key == LabelTable::KEY) else {
        return Ok(None);
    };
    let object = ObjectInfo::from(object);
    let fetched = wait(py, hosts.first(|client| fetch(client, root, &object)))?;
    let bytes = fetched.map_err(|error| errors::of_client(py, &error))?;
    let bytes = bytes.ok_or_else(|| errors::settings(py, "labels.csv beside the data cannot be read"))?;
    Ok(Some((object.sample.key, bytes)))
}

/// Samples as keys, etags, sizes and labels; of those that have several, one sample's labels after another's.
fn part<'py>(py: Python<'py>, samples: &Samples) -> PyResult<Bound<'py, PyDict>> {
    let objects = samples.iter().map(|(object, _)| object);
    let (mut keys, mut etags, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
    for object in objects {
        keys.push(object.sample.key);
        etags.push(object.sample.etag);
        sizes.push(object.size.cast_signed());
    }
    let found = PyDict::new(py);
    found.set_item("keys", keys)?;
    found.set_item("etags", etags)?;
    found.set_item("sizes", sizes.into_pyarray(py))?;
    let all = 0..samples.len();
    if samples.values(0).is_some() {
        let values: Vec<f32> = all
            .filter_map(|index| samples.values(index))
            .flatten()
            .copied()
            .collect();
        found.set_item("labels", values.into_pyarray(py))?;
    } else {
        let labels: Vec<i64> = all
            .filter_map(|index| samples.label(index))
            .map(i64::from)
            .collect();
        found.set_item("labels", labels.into_pyarray(py))?;
    }
    Ok(found)
}

/// A table on this machine; of one that is too large, just more than it may have.
fn local(py: Python<'_>, file: &Path) -> PyResult<Bytes> {
    let read = || {
        let mut bytes = Vec::new();
        let opened = File::open(file)?;
        opened.take(LabelTable::MOST_BYTES + 1).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(Bytes::from(bytes))
    };
    let failed = |error| {
        errors::settings(
            py,
            &format!("the labels {} cannot be read: {error}", file.display()),
        )
    };
    py.detach(read).map_err(failed)
}

/// The bytes of an object in the version that was listed; none where the host cannot read it, or it is too large for a table.
async fn fetch(client: HostClient, root: &str, object: &ObjectInfo) -> Result<Option<Bytes>, ClientError> {
    if object.size > LabelTable::MOST_BYTES {
        return Ok(None);
    }
    Ok(client.read(root, std::slice::from_ref(object)).await?.pop())
}

/// The numbers `0..count` in the order of an epoch of `frostline train`, which are counted from 1.
#[pyfunction]
#[pyo3(name = "order")]
pub(crate) fn shuffled(py: Python<'_>, count: usize, seed: u64, epoch: u32) -> Bound<'_, PyArray1<u32>> {
    let shuffled = py.detach(|| order(count, seed, Purpose::Epoch(epoch)));
    shuffled.into_pyarray(py)
}
