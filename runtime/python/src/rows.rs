//! Prefetching iteration over batches of activations.

use crate::errors;
use crate::process::wait;
use crate::stream::Connections;
use frostline_client::{Fetched, InquiryError, Pass, Passed, PrefetchLimits, Source};
use frostline_tensor::Data;
use frostline_wire::{ObjectInfo, View};
use numpy::{PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::VecDeque;
use std::sync::Arc;

/// Iterator over the batches of a pass. `_native.pyi` documents the methods.
#[pyclass(module = "frostline._native")]
pub(crate) struct Rows {
    process: u32,
    /// Number of samples in the batches returned before.
    done: usize,
    state: State,
}

enum State {
    /// No requests sent yet. The shape at the cut is unknown.
    Requested(PassRequest),
    Running(Pass, Arc<Connections>),
    /// Closed, or ended by an error.
    Ended,
}

/// Parameters of a pass.
pub(crate) struct PassRequest {
    pub(crate) live: Arc<Connections>,
    pub(crate) cut: String,
    pub(crate) view: Option<View>,
    pub(crate) ahead: PrefetchLimits,
    pub(crate) batches: VecDeque<Arc<[ObjectInfo]>>,
}

impl Rows {
    pub(crate) fn new(asked: PassRequest) -> Self {
        Self {
            process: std::process::id(),
            done: 0,
            state: State::Requested(asked),
        }
    }

    fn belongs_to_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Returns the pass, and starts it on the first call. Returns `None` if the pass has ended. Ctrl-C does
    /// not change the state.
    fn pass(&mut self, py: Python<'_>) -> PyResult<Option<&mut Pass>> {
        if let State::Requested(asked) = &mut self.state {
            let found = wait(py, asked.live.source(&asked.cut))?;
            self.state = match asked.start(found) {
                Ok(pass) => State::Running(pass, Arc::clone(&asked.live)),
                Err(error) => {
                    self.state = State::Ended;
                    return Err(errors::from_inquiry(py, &error));
                }
            };
        }
        Ok(match &mut self.state {
            State::Running(pass, _) => Some(pass),
            State::Requested(_) | State::Ended => None,
        })
    }
}

impl PassRequest {
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
            State::Requested(asked) => asked.batches.len(),
            State::Running(pass, _) => pass.left(),
            State::Ended => 0,
        }
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        if !self.belongs_to_this_process() {
            let why = "rows() was called before a fork; call it again in this process";
            return Err(errors::general(py, why));
        }
        let Some(pass) = self.pass(py)? else {
            return Ok(None);
        };
        match wait(py, pass.next())? {
            None => Ok(None),
            Some(Ok(Passed { samples, fetched })) => {
                let before = self.done;
                self.done += samples.len();
                if let State::Running(_, live) = &self.state {
                    live.warn(py)?;
                }
                to_dictionary(py, fetched, &samples, before).map(Some)
            }
            Some(Err(error)) => {
                self.state = State::Ended;
                Err(errors::from_client(py, &error))
            }
        }
    }

    /// Ends the pass and cancels the batches in flight.
    fn close(&mut self) {
        let state = std::mem::replace(&mut self.state, State::Ended);
        if !self.belongs_to_this_process() {
            std::mem::forget(state);
        }
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.close();
    }
}

/// Converts a batch to Python without copying its values. `before` is the number of samples in earlier
/// batches.
fn to_dictionary<'py>(
    py: Python<'py>,
    fetched: Fetched,
    samples: &[ObjectInfo],
    before: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let Fetched {
        rows, indices, bad, ..
    } = fetched;
    let shape = rows.shape().dims().to_vec();
    let Data::F32(values) = rows.into_data() else {
        return Err(errors::general(
            py,
            "received activations with a type other than float32; please report this bug",
        ));
    };
    let data = PyArray1::from_vec(py, values).reshape(shape)?;
    let key = |index: usize| samples.get(index).map(|sample| sample.sample.key.as_str());
    let keys: Vec<&str> = indices.iter().filter_map(|index| key(*index)).collect();
    let index: Vec<usize> = indices.iter().map(|index| before + index).collect();
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
