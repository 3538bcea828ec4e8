//! Division of samples for a task according to the rules of `frostline train`, and the sample order of an
//! epoch.

use crate::hosts::PyHosts;
use crate::process::wait;
use crate::settings::read;
use crate::{errors, hints};
use frostline_client::{Dataset, Division, LabelTable, Purpose, SampleFiles, Samples, Task, order};
use frostline_wire::Layout;
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;

/// Source of the labels, and settings for the division of samples.
#[derive(FromPyObject)]
pub(crate) struct DatasetOptions<'py> {
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

/// Lists the samples under `root` and divides them. Returns a dictionary with `classes`, `train`,
/// `validation`, `test`, `warnings` and `left_out` (the number of omitted objects, and the first few keys);
/// see `_native.pyi`.
#[pyfunction]
pub(crate) fn dataset<'py>(
    py: Python<'py>,
    hosts: &PyHosts,
    root: &str,
    wanted: DatasetOptions<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    let layout: Layout = read(&wanted.layout, "the layout")?;
    let task = wanted.task(py)?;
    let hosts = hosts.connected(py)?;
    let listing = wait(py, hosts.listing(root, layout))?.map_err(|error| errors::from_client(py, &error))?;
    let table = match &wanted.labels {
        Some(file) => {
            let name = file.display();
            let bytes = py.detach(|| LabelTable::read_file(file)).map_err(|error| {
                errors::invalid_settings(py, &format!("cannot read the labels {name}: {error}"))
            })?;
            Some((name.to_string(), bytes))
        }
        None => {
            let read = wait(py, hosts.labels_table(root, &listing))?;
            let read = read.map_err(|error| errors::from_client(py, &error))?;
            let read = read.map(|read| read.map(|bytes| (LabelTable::KEY.to_owned(), bytes)));
            read.transpose().map_err(|_| {
                errors::invalid_settings(
                    py,
                    "cannot use labels.csv in the data root: it is unreadable or larger than 64 MiB",
                )
            })?
        }
    };
    if table.is_none() && task == Task::Numbers {
        let what = format!(
            "the task numbers requires a table, but {root} has no labels.csv; set labels= to a CSV file"
        );
        return Err(errors::invalid_settings(py, &what));
    }
    let division = wanted.division();
    let divided = py.detach(|| {
        let table = table.map(|(name, bytes)| LabelTable::parse(&name, &bytes, task));
        Dataset::new(root, listing, table.transpose()?, division)
    });
    let divided = divided.map_err(|error| errors::invalid_settings(py, &hints::with_hint(&error)))?;
    let found = PyDict::new(py);
    // Each class is a label with 0 or 1, as with `frostline train --loss bce`.
    let columns = (task == Task::Labels).then_some(divided.classes.len());
    found.set_item("train", to_dictionary(py, &divided.train, columns)?)?;
    found.set_item("validation", to_dictionary(py, &divided.validation, columns)?)?;
    found.set_item("test", to_dictionary(py, &divided.test, columns)?)?;
    found.set_item("left_out", (divided.left_out.objects, divided.left_out.first))?;
    let warnings: Vec<String> = divided.warnings.iter().map(ToString::to_string).collect();
    found.set_item("warnings", warnings)?;
    found.set_item("classes", divided.classes)?;
    Ok(found)
}

impl DatasetOptions<'_> {
    fn task(&self, py: Python<'_>) -> PyResult<Task> {
        match self.task.as_str() {
            "classes" => Ok(Task::Classes),
            "labels" => Ok(Task::Labels),
            "numbers" => Ok(Task::Numbers),
            other => {
                let what = format!("invalid task {other:?}; use classes, labels or numbers");
                Err(errors::invalid_settings(py, &what))
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

/// Converts samples to arrays of keys, etags, sizes and labels. If samples have multiple labels, the labels
/// of all samples are concatenated. With `columns`, classes become one label of 0 or 1 per class.
fn to_dictionary<'py>(
    py: Python<'py>,
    samples: &Samples,
    columns: Option<usize>,
) -> PyResult<Bound<'py, PyDict>> {
    let objects = samples.iter().map(|(object, _)| object);
    let mut keys = Vec::new();
    let mut etags = Vec::new();
    let mut sizes = Vec::new();
    let mut changed = Vec::new();
    for object in objects {
        keys.push(object.sample.key);
        etags.push(object.sample.etag);
        changed.push(object.changed);
        sizes.push(object.size.cast_signed());
    }
    let found = PyDict::new(py);
    found.set_item("keys", keys)?;
    found.set_item("etags", etags)?;
    found.set_item("changed", changed)?;
    found.set_item("sizes", sizes.into_pyarray(py))?;
    let all = 0..samples.len();
    if samples.values(0).is_some() {
        let values: Vec<f32> = all
            .filter_map(|index| samples.values(index))
            .flatten()
            .copied()
            .collect();
        found.set_item("labels", values.into_pyarray(py))?;
    } else if let Some(columns) = columns {
        let mut flags = vec![0.0_f32; samples.len() * columns];
        for (row, index) in flags.chunks_mut(columns.max(1)).zip(all) {
            let class = samples.label(index).and_then(|label| row.get_mut(label as usize));
            class.into_iter().for_each(|flag| *flag = 1.0);
        }
        found.set_item("labels", flags.into_pyarray(py))?;
    } else {
        let labels: Vec<i64> = all
            .filter_map(|index| samples.label(index))
            .map(i64::from)
            .collect();
        found.set_item("labels", labels.into_pyarray(py))?;
    }
    Ok(found)
}

/// Returns the numbers `0..count` in the order of an epoch of `frostline train`. Epochs are counted from 1.
#[pyfunction]
#[pyo3(name = "order")]
pub(crate) fn epoch_order(py: Python<'_>, count: usize, seed: u64, epoch: u32) -> Bound<'_, PyArray1<u32>> {
    let shuffled = py.detach(|| order(count, seed, Purpose::Epoch(epoch)));
    shuffled.into_pyarray(py)
}
