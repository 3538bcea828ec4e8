//! One pass over samples, batch by batch, some of them ahead.

use crate::errors;
use crate::process::wait;
use crate::stream::Live;
use frostline_client::{Ahead, Fetched, InquiryError, Pass, Passed, Source};
use frostline_tensor::Data;
use frostline_wire::{ObjectInfo, View};
use numpy::{PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::VecDeque;
use std::sync::Arc;

/// The batches of one pass; see `_native.pyi`.
#[pyclass(module = "frostline._native")]
pub(crate) struct Rows {
    process: u32,
    /// Samples of batches that were handed out.
    done: usize,
    state: State,
}

enum State {
    /// It is not known yet what rows there are at the cut.
    Asked(Asked),
    Under(Pass),
    /// It was closed, or an error ended it.
    Over,
}

/// What a pass is to bring.
pub(crate) struct Asked {
    pub(crate) live: Arc<Live>,
    pub(crate) cut: String,
    pub(crate) view: Option<View>,
    pub(crate) ahead: Ahead,
    pub(crate) batches: VecDeque<Arc<[ObjectInfo]>>,
}

impl Rows {
    pub(crate) fn new(asked: Asked) -> Self {
        Self {
            process: std::process::id(),
            done: 0,
            state: State::Asked(asked),
        }
    }

    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// The pass, begun where it was not; `None` where it is over. Ctrl-C leaves it as it was.
    fn pass(&mut self, py: Python<'_>) -> PyResult<Option<&mut Pass>> {
        if let State::Asked(asked) = &mut self.state {
            let found = wait(py, asked.live.source(&asked.cut))?;
            self.state = match asked.start(found) {
                Ok(pass) => State::Under(pass),
                Err(error) => {
                    self.state = State::Over;
                    return Err(errors::of_inquiry(py, &error));
                }
            };
        }
        Ok(match &mut self.state {
            State::Under(pass) => Some(pass),
            State::Asked(_) | State::Over => None,
        })
    }
}

impl Asked {
    fn start(&mut self, found: Result<Source, InquiryError>) -> Result<Pass, InquiryError> {
        let source = Source {
            view: self.view,
            ..found?
        };
        let batches = std::mem::take(&mut self.batches);
        let (fetcher, hosts) = (self.live.fetcher.clone(), self.live.hosts.clone());
        Ok(Pass::new(fetcher, hosts, source.into(), batches, self.ahead))
    }
}

#[pymethods]
impl Rows {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __len__(&self) -> usize {
        match &self.state {
            State::Asked(asked) => asked.batches.len(),
            State::Under(pass) => pass.left(),
            State::Over => 0,
        }
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        if !self.is_ours() {
            let why = "these rows were asked for in another process, before a fork; call rows() in the one that uses them";
            return Err(errors::other(py, why));
        }
        let Some(pass) = self.pass(py)? else {
            return Ok(None);
        };
        match wait(py, pass.next())? {
            None => Ok(None),
            Some(Ok(Passed { samples, fetched })) => {
                let before = self.done;
                self.done += samples.len();
                handed(py, fetched, &samples, before).map(Some)
            }
            Some(Err(error)) => {
                self.state = State::Over;
                Err(errors::of_client(py, &error))
            }
        }
    }

    /// Ends the pass: what is under way is cancelled.
    fn close(&mut self) {
        let state = std::mem::replace(&mut self.state, State::Over);
        if !self.is_ours() {
            std::mem::forget(state);
        }
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.close();
    }
}

/// A batch as Python gets it: its memory becomes the array's. `before` samples came before it.
fn handed<'py>(
    py: Python<'py>,
    fetched: Fetched,
    samples: &[ObjectInfo],
    before: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let Fetched { rows, kept, bad, .. } = fetched;
    let shape = rows.shape().dims().to_vec();
    let Data::F32(values) = rows.into_data() else {
        return Err(errors::other(
            py,
            "rows arrived as something else than float32; please report it",
        ));
    };
    let data = PyArray1::from_vec(py, values).reshape(shape)?;
    let key = |index: usize| samples.get(index).map(|sample| sample.sample.key.as_str());
    let keys: Vec<&str> = kept.iter().filter_map(|index| key(*index)).collect();
    let index: Vec<usize> = kept.iter().map(|index| before + index).collect();
    let failed = bad
        .iter()
        .filter_map(|(index, why)| Some((key(*index)?, why.to_string())));
    let batch = PyDict::new(py);
    batch.set_item("data", data)?;
    batch.set_item("keys", keys)?;
    batch.set_item("index", index)?;
    batch.set_item("failed", failed.collect::<Vec<_>>())?;
    Ok(batch)
}
