//! Prefetching iteration over batches of activations.

use crate::connections::StreamConnections;
use crate::errors;
use crate::process::wait;
use frostline_client::{InquiryError, Source};
use frostline_rows::{BatchRows, Prefetch, PrefetchLimits, RowCache, RowSource, RowsError, SampleBatch};
use frostline_tensor::{Data, Tensor};
use frostline_wire::{ObjectInfo, View};
use numpy::{PyArray1, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn};
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
    /// Parameters and remaining batches. `None` if the pass is closed or has failed.
    request: Option<PassRequest>,
    /// Prefetch, started by the first call of `__next__`.
    running: Option<RunningPass>,
}

/// Parameters of a pass.
pub(crate) struct PassRequest {
    pub(crate) live: Arc<StreamConnections>,
    pub(crate) cut: String,
    pub(crate) view: Option<View>,
    pub(crate) ahead: PrefetchLimits,
    /// Remaining batches.
    pub(crate) batches: VecDeque<Arc<[ObjectInfo]>>,
    /// Cache of the rows that `middle` returns.
    pub(crate) cache: Option<Arc<RowCache>>,
    /// Python function that computes the rows from activations at the cut.
    pub(crate) middle: Option<Py<PyAny>>,
    /// Whether hosts are not asked if all rows are cached.
    pub(crate) offline: bool,
}

struct RunningPass {
    batches: Prefetch<SampleBatch, RowsError>,
    /// Shape of the activations of a sample at the cut.
    shape: Vec<usize>,
}

type Array<'py> = Bound<'py, PyArrayDyn<f32>>;

impl Rows {
    pub(crate) fn new(request: PassRequest) -> Self {
        Self {
            process: std::process::id(),
            done: 0,
            request: Some(request),
            running: None,
        }
    }

    fn belongs_to_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Waits for the next batch, and starts the pass on the first call. The outer error is that of a signal such
    /// as Ctrl-C, which does not change the state.
    fn next_batch(&mut self, py: Python<'_>) -> PyResult<PyResult<Option<SampleBatch>>> {
        let Some(request) = &mut self.request else {
            return Ok(Ok(None));
        };
        loop {
            let running = match &mut self.running {
                Some(running) => running,
                None => match wait(py, request.start())? {
                    Ok(started) => self.running.insert(started),
                    Err(error) => return Ok(Err(errors::from_inquiry(py, &error))),
                },
            };
            match wait(py, running.batches.next())?.transpose() {
                // A cached row is damaged, or another program removed the cache.
                Err(RowsError::NotCached) => {
                    request.offline = false;
                    self.running = None;
                }
                batch => return Ok(batch.map_err(|error| errors::from_rows(py, &error))),
            }
        }
    }

    /// Converts a batch to Python without copying its values.
    fn convert<'py>(&mut self, py: Python<'py>, batch: SampleBatch) -> PyResult<Bound<'py, PyDict>> {
        let (Some(request), Some(running)) = (&mut self.request, &self.running) else {
            return Err(errors::general(py, "the pass is closed"));
        };
        let SampleBatch { samples, fetched, .. } = batch;
        let positions = fetched.rows.iter().flat_map(BatchRows::fetched_positions);
        let new = positions.filter_map(|position| fetched.indices.get(position));
        let new: Vec<usize> = new.map(|index| self.done + index).collect();
        let data = match fetched.rows {
            Some(rows) => request.activations(py, rows)?,
            None => request.middle(py, empty(py, &running.shape)?)?,
        };
        let before = self.done;
        self.done += samples.len();
        request.batches.pop_front();
        let keys = fetched
            .indices
            .iter()
            .filter_map(|index| key_of(&samples, *index));
        let keys: Vec<&str> = keys.collect();
        let index: Vec<usize> = fetched.indices.iter().map(|index| before + index).collect();
        let failed = fetched.bad.iter();
        let failed = failed.filter_map(|(index, why)| Some((key_of(&samples, *index)?, why.to_string())));
        let batch = PyDict::new(py);
        batch.set_item("data", data)?;
        batch.set_item("keys", keys)?;
        batch.set_item("index", index)?;
        batch.set_item("fetched", new)?;
        batch.set_item("failed", failed.collect::<Vec<_>>())?;
        Ok(batch)
    }
}

fn key_of(samples: &[ObjectInfo], index: usize) -> Option<&str> {
    samples.get(index).map(|sample| sample.sample.key.as_str())
}

impl PassRequest {
    /// Starts to get the rows. Hosts are asked for the shape at the cut, unless all rows are cached.
    async fn start(&mut self) -> Result<RunningPass, InquiryError> {
        let asked = match self.is_cached().await {
            true => None,
            false => Some(self.live.source(&self.cut).await?),
        };
        let fetcher = asked.is_some().then(|| self.live.fetcher.clone());
        let source = Source {
            view: self.view,
            ..asked.unwrap_or_else(|| self.live.cached_source(&self.cut))
        };
        let shape = source.shape.clone();
        let rows = RowSource {
            fetcher,
            cache: self.cache.clone(),
        };
        let hosts = self.live.hosts.clone();
        let batches = self.batches.iter().cloned().collect();
        Ok(RunningPass {
            batches: Prefetch::of_samples(rows, self.ahead, hosts, source.into(), batches),
            shape,
        })
    }

    async fn is_cached(&self) -> bool {
        let Some(cache) = &self.cache else { return false };
        if cache.refresh().await.is_err() || !self.offline {
            return false;
        }
        let samples = self.batches.iter().flat_map(|batch| batch.iter());
        cache.count(samples.clone().cloned(), self.view.as_ref()) == samples.count() as u64
    }

    /// Returns the rows of a batch, and caches new ones.
    fn activations<'py>(&self, py: Python<'py>, mut rows: BatchRows) -> PyResult<Array<'py>> {
        let fetched = match rows.take_fetched() {
            Some(fetched) if self.middle.is_some() => {
                let computed = self.middle(py, to_array(py, fetched)?)?;
                if self.cache.is_none() {
                    return Ok(computed);
                }
                Some(to_tensor(py, &computed)?)
            }
            fetched => fetched,
        };
        let (rows, pending) = rows
            .join(|_| Ok::<_, RowsError>(fetched))
            .map_err(|error| errors::from_rows(py, &error))?;
        if self.cache.is_some() {
            pending.cache(rows.clone());
        }
        to_array(py, rows)
    }

    /// Computes rows from activations at the cut.
    fn middle<'py>(&self, py: Python<'py>, activations: Array<'py>) -> PyResult<Array<'py>> {
        match &self.middle {
            None => Ok(activations),
            Some(middle) => Ok(middle.bind(py).call1((activations,))?.cast_into()?),
        }
    }
}

fn empty<'py>(py: Python<'py>, shape: &[usize]) -> PyResult<Array<'py>> {
    let shape = [&[0], shape].concat();
    PyArray1::from_vec(py, Vec::new()).reshape(shape)
}

fn to_array(py: Python<'_>, rows: Tensor) -> PyResult<Array<'_>> {
    let shape = rows.shape().dims().to_vec();
    let Data::F32(values) = rows.into_data() else {
        return Err(errors::general(
            py,
            "received activations with a type other than float32; please report this bug",
        ));
    };
    PyArray1::from_vec(py, values).reshape(shape)
}

fn to_tensor(py: Python<'_>, rows: &Array<'_>) -> PyResult<Tensor> {
    let rows: PyReadonlyArrayDyn<'_, f32> = rows.readonly();
    let rows = rows.as_array();
    let tensor = Tensor::f32(rows.shape(), rows.iter().copied().collect());
    tensor.map_err(|error| errors::general(py, &error.to_string()))
}

#[pymethods]
impl Rows {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __len__(&self) -> usize {
        self.request.as_ref().map_or(0, |request| request.batches.len())
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        if !self.belongs_to_this_process() {
            let why = "rows() was called before a fork; call it again in this process";
            return Err(errors::general(py, why));
        }
        let next = self.next_batch(py)?;
        if next.is_err() {
            self.close();
        }
        let Some(batch) = next? else { return Ok(None) };
        if let Some(request) = &self.request {
            request.live.warn(py)?;
        }
        self.convert(py, batch).map(Some)
    }

    /// Ends the pass and cancels the batches in flight.
    fn close(&mut self) {
        let state = (self.request.take(), self.running.take());
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
