//! Executions that replay a CUDA graph.
//!
//! ONNX Runtime captures the kernels of a session's first execution, and launches them together in later
//! executions. The kernels read and write the addresses of the first execution, and bound host memory is not
//! copied, so inputs and outputs need tensors on the device with fixed addresses. See
//! <https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html#using-cuda-graphs-preview>.

use crate::binding::{StageRun, Staging, copy_failed, is_of, reserve};
use crate::capture::{Capture, FixedTensors};
use crate::session::find_output;
use crate::tensor_spec::TensorSpec;
use crate::values::{self, View};
use crate::{EngineError, Session};
use frostline_tensor::{DType, Stage};
use ort::memory::Allocator;
use ort::session::RunOptions;
use ort::value::DynTensor;

/// Run option that selects a graph.
const GRAPH: &str = "gpu_graph_id";
/// Executes without a graph.
const NO_GRAPH: &str = "-1";

impl FixedTensors {
    fn fits(&self, input: &TensorSpec, output: &TensorSpec) -> bool {
        is_of(&self.input, input) && is_of(&self.output, output)
    }
}

impl Session {
    /// Returns options for an execution, which uses the session's graph if `captured`.
    pub(crate) fn run_options(&self, captured: bool) -> Result<RunOptions, EngineError> {
        let doing = "prepare an execution";
        let mut options = RunOptions::new().map_err(EngineError::internal(doing))?;
        if !captured && !matches!(self.capture, Capture::Off) {
            let set = options.set(GRAPH, NO_GRAPH);
            set.map_err(EngineError::internal(doing))?;
        }
        Ok(options)
    }

    /// Takes the tensors of the session's graph if it fits a batch with an output like `made`. Allocates
    /// the tensors in the first call.
    ///
    /// # Errors
    /// Returns [`EngineError::OutOfMemory`] or [`EngineError::Internal`] if they cannot be allocated.
    pub(crate) fn take_fixed(
        &mut self,
        run: StageRun<'_>,
        made: &TensorSpec,
    ) -> Result<Option<FixedTensors>, EngineError> {
        let dtype = match run.stage.pixels {
            Some(_) => DType::F32,
            None => run.batch.dtype(),
        };
        let shape = run.batch.shape().clone();
        let input = TensorSpec { dtype, shape };
        match std::mem::take(&mut self.capture) {
            Capture::For(fixed) if fixed.fits(&input, made) => Ok(Some(fixed)),
            Capture::Ready => {
                let allocated = self.allocate(&input, made);
                allocated
                    .map(Some)
                    .map_err(EngineError::internal("allocate the memory of a batch"))
            }
            unused => {
                self.capture = unused;
                Ok(None)
            }
        }
    }

    fn allocate(&self, input: &TensorSpec, output: &TensorSpec) -> ort::Result<FixedTensors> {
        let memory = Allocator::new(&self.inner, self.device.memory()?)?;
        Ok(FixedTensors {
            input: new_tensor(&memory, input)?,
            output: new_tensor(&memory, output)?,
        })
    }

    /// Runs the network on a batch with the tensors of its graph, and calls `take` with the output in host
    /// memory.
    ///
    /// # Errors
    /// Returns the errors of [`Session::run_bound`]. Later batches are executed without a graph.
    pub(crate) fn run_captured<T>(
        &mut self,
        staging: &mut Staging,
        mut fixed: FixedTensors,
        run: StageRun<'_>,
        take: impl FnOnce(View<'_>) -> T,
    ) -> Result<T, EngineError> {
        let ran = self.replay(staging, &mut fixed, run);
        self.capture = match ran {
            Ok(()) => Capture::For(fixed),
            Err(_) => Capture::Abandoned { _tensors: fixed },
        };
        ran?;
        values::view_bound(&run.stage.to, staging.output.as_ref(), take)
    }

    /// Copies the batch to the graph's input, launches the graph, and copies the output to the output buffer.
    fn replay(
        &mut self,
        staging: &mut Staging,
        fixed: &mut FixedTensors,
        run: StageRun<'_>,
    ) -> Result<(), EngineError> {
        let Stage { from, to, .. } = run.stage;
        self.fill(&mut fixed.input, staging, run)?;
        let mut binding = self.inner.create_binding().map_err(copy_failed)?;
        binding.bind_input(from, &fixed.input).map_err(copy_failed)?;
        binding.bind_output(to, &mut fixed.output).map_err(copy_failed)?;
        let options = self.run_options(true)?;
        self.run_binding(&binding, options, run.interrupt, |outputs| {
            find_output(outputs, to).map(drop)
        })?;
        let made = values::spec(&fixed.output).ok_or_else(|| EngineError::OutputType {
            name: to.clone(),
            actual: fixed.output.dtype().to_string(),
        })?;
        let output = reserve(&mut staging.output, &Allocator::default(), &made).map_err(copy_failed)?;
        fixed.output.copy_into(output).map_err(copy_failed)
    }
}

fn new_tensor(memory: &Allocator, TensorSpec { dtype, shape }: &TensorSpec) -> ort::Result<DynTensor> {
    DynTensor::new(memory, values::element_type(*dtype), shape.dims())
}
