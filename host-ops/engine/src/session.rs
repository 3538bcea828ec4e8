use crate::capture::{self, Capture};
use crate::half_weights::has_half_weights;
use crate::interrupt::Target;
use crate::options::SessionOptions;
use crate::{CudaOptions, Device, EngineError, Interrupt, TensorSlot, library, slot, values};
use frostline_tensor::Tensor;
use ort::ep::{CPU, CUDA, ExecutionProvider};
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::session::{SessionInputValue, SessionOutputs};
use ort::value::DynValue;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Name of ONNX Runtime's optimizer that merges Transpose and Gemm.
const TRANSPOSE_FUSION: &str = "GemmTransposeFusion";

/// Name of ONNX Runtime's optimizer that changes the layout of convolutions on the CPU. Version 1.31.1 ends
/// with SIGSEGV in it when it opens an f16 ViT-B/16 of torch's older exporter.
const LAYOUT_CHANGE: &str = "NchwcTransformer";

/// A network in ONNX Runtime that is ready to run. It cannot be shared by threads.
#[derive(Debug)]
pub struct Session {
    pub(crate) inner: ort::session::Session,
    pub(crate) device: Device,
    inputs: Vec<TensorSlot>,
    outputs: Vec<TensorSlot>,
    /// Step outputs that overwrite the previous state.
    pub(crate) in_place: BTreeSet<String>,
    pub(crate) capture: Capture,
}

impl Session {
    /// Loads and optimizes the ONNX model `model` (the bytes of a file without external data).
    ///
    /// # Errors
    /// Returns [`EngineError::LibraryMissing`] or [`EngineError::LibraryUnusable`] if ONNX Runtime cannot be
    /// loaded, [`EngineError::Device`] if the device is missing, [`EngineError::OutOfMemory`] if memory is
    /// exhausted, [`EngineError::Model`] with ONNX Runtime's text for an invalid model, and
    /// [`EngineError::Internal`] if ONNX Runtime rejects the options.
    pub fn open(model: &[u8], options: &SessionOptions) -> Result<Self, EngineError> {
        Self::open_until(model, options, &Interrupt::new())
    }

    /// [`Session::open`] with an interrupt.
    ///
    /// # Errors
    /// Returns the errors of [`Session::open`], and [`EngineError::Interrupted`] if `interrupt` is triggered.
    pub fn open_until(
        model: &[u8],
        options: &SessionOptions,
        interrupt: &Interrupt,
    ) -> Result<Self, EngineError> {
        match Self::load(builder_for(model, options)?, model, options, interrupt) {
            Err(EngineError::Model { reason })
                if options.cuda.graphs && reason.contains(capture::REFUSED) =>
            {
                tracing::debug!(reason, "executing a network without a CUDA graph");
                let cuda = CudaOptions {
                    graphs: false,
                    ..options.cuda
                };
                let options = SessionOptions {
                    cuda,
                    ..options.clone()
                };
                Self::load(builder_for(model, &options)?, model, &options, interrupt)
            }
            loaded => loaded,
        }
    }

    /// Opens a model with external data, where `weights` is the content of the file that the model calls
    /// `name`. Such a network can exceed 2 GiB, which is the maximum size of an ONNX file.
    ///
    /// # Errors
    /// Returns the errors of [`Session::open_until`].
    pub fn open_beside(
        model: &[u8],
        name: &str,
        weights: Arc<[u8]>,
        options: &SessionOptions,
        interrupt: &Interrupt,
    ) -> Result<Self, EngineError> {
        let builder = builder_for(model, options)?.with_external_initializer_file_in_memory(name, weights);
        let builder = builder.map_err(|error| EngineError::Model {
            reason: error.message().to_owned(),
        })?;
        Self::load(builder, model, options, interrupt)
    }

    pub(crate) fn load(
        builder: SessionBuilder,
        model: &[u8],
        options: &SessionOptions,
        interrupt: &Interrupt,
    ) -> Result<Self, EngineError> {
        Self::commit(builder, options, interrupt, |builder| {
            builder.commit_from_memory(model)
        })
    }

    pub(crate) fn commit(
        mut builder: SessionBuilder,
        options: &SessionOptions,
        interrupt: &Interrupt,
        commit: impl FnOnce(&mut SessionBuilder) -> ort::Result<ort::session::Session>,
    ) -> Result<Self, EngineError> {
        let guarded = interrupt.guard(Target::Load(builder.canceler()))?;
        // `ort` panics on declared types that it does not support, and the model is untrusted.
        let committed = catch_unwind(AssertUnwindSafe(|| commit(&mut builder)));
        drop(guarded);
        let inner = match committed {
            Ok(Ok(inner)) => inner,
            Ok(Err(error)) => {
                return Err(EngineError::of_load(error.message()).or_interrupted(interrupt));
            }
            Err(_) => {
                return Err(EngineError::Model {
                    reason: "an input or output has an unsupported type".into(),
                });
            }
        };
        let mut session = Self::new(inner, options.device);
        if options.cuda.graphs && options.device != Device::Cpu {
            session.capture = Capture::Ready;
        }
        Ok(session)
    }

    pub(crate) fn new(inner: ort::session::Session, device: Device) -> Self {
        let inputs = inner.inputs().iter().map(TensorSlot::new).collect();
        let outputs = inner.outputs().iter().map(TensorSlot::new).collect();
        Self {
            inner,
            device,
            inputs,
            outputs,
            in_place: BTreeSet::new(),
            capture: Capture::Off,
        }
    }

    /// Returns the inputs in the order of the model.
    pub fn inputs(&self) -> &[TensorSlot] {
        &self.inputs
    }

    /// Returns the outputs in the order of the model.
    pub fn outputs(&self) -> &[TensorSlot] {
        &self.outputs
    }

    /// Runs the network on `inputs` and returns all outputs in the order of the model. Each input must be
    /// passed once.
    ///
    /// Inputs are not copied. Outputs are copied once from ONNX Runtime's memory, or twice from a device's
    /// memory.
    ///
    /// # Errors
    /// Returns [`EngineError::UnknownInput`], [`EngineError::InputCount`] or [`EngineError::InputMismatch`]
    /// for invalid inputs. Returns [`EngineError::OutputType`] if the type of an output is not supported,
    /// [`EngineError::Run`] or [`EngineError::OutOfMemory`] with ONNX Runtime's text if the execution fails,
    /// and [`EngineError::Internal`] if it cannot be prepared or an output cannot be read from the device.
    pub fn run(&mut self, inputs: &[(&str, &Tensor)]) -> Result<Vec<(String, Tensor)>, EngineError> {
        self.run_until(inputs, &Interrupt::new())
    }

    /// [`Session::run`] with an interrupt.
    ///
    /// # Errors
    /// Returns the errors of [`Session::run`], and [`EngineError::Interrupted`] if `interrupt` is triggered.
    pub fn run_until(
        &mut self,
        inputs: &[(&str, &Tensor)],
        interrupt: &Interrupt,
    ) -> Result<Vec<(String, Tensor)>, EngineError> {
        self.check_inputs(inputs, &[])?;
        let bound = inputs
            .iter()
            .map(|(name, tensor)| Ok((*name, values::borrow(tensor)?)));
        let bound: Vec<(&str, SessionInputValue<'_>)> = bound.collect::<Result<_, EngineError>>()?;
        let names: Vec<String> = self.outputs.iter().map(|slot| slot.name.clone()).collect();
        let options = Arc::new(self.run_options(false)?);
        let guarded = interrupt.guard(Target::Run(Arc::clone(&options)))?;
        let ran = self.inner.run_with_options(bound, &options);
        drop(guarded);
        let outputs = ran.map_err(|error| EngineError::of_run(error.message()).or_interrupted(interrupt))?;
        let named = names.into_iter();
        named
            .map(|name| extract_output(&outputs, &name).map(|tensor| (name, tensor)))
            .collect()
    }

    /// Checks that each input of the model occurs exactly once in `inputs` and `elsewhere`. Types and shapes
    /// are only checked for `inputs`.
    pub(crate) fn check_inputs(
        &self,
        inputs: &[(&str, &Tensor)],
        elsewhere: &[&str],
    ) -> Result<(), EngineError> {
        let given = inputs.iter().map(|(name, _)| *name);
        let given = given.chain(elsewhere.iter().copied());
        for name in given.clone() {
            self.input(name)?;
        }
        for slot in &self.inputs {
            let times = given.clone().filter(|name| *name == slot.name).count();
            if times != 1 {
                return Err(EngineError::InputCount {
                    name: slot.name.clone(),
                    times,
                });
            }
        }
        inputs
            .iter()
            .try_for_each(|(name, tensor)| self.input(name)?.check(tensor.dtype(), tensor.shape()))
    }

    pub(crate) fn input(&self, name: &str) -> Result<&TensorSlot, EngineError> {
        slot::find(&self.inputs, name).map_err(|known| EngineError::UnknownInput {
            name: name.to_owned(),
            known,
        })
    }

    pub(crate) fn output(&self, name: &str) -> Result<&TensorSlot, EngineError> {
        slot::find(&self.outputs, name).map_err(|known| EngineError::UnknownOutput {
            name: name.to_owned(),
            known,
        })
    }
}

/// Copies the output `name`, which the session is known to have.
pub(crate) fn extract_output(outputs: &SessionOutputs<'_>, name: &str) -> Result<Tensor, EngineError> {
    values::extract(name, find_output(outputs, name)?)
}

pub(crate) fn find_output<'a>(
    outputs: &'a SessionOutputs<'_>,
    name: &str,
) -> Result<&'a DynValue, EngineError> {
    outputs.get(name).ok_or_else(|| EngineError::UnknownOutput {
        name: name.to_owned(),
        known: outputs.keys().collect::<Vec<_>>().join(", "),
    })
}

/// An ONNX model with a single Relu.
const SMALLEST: &[u8] = b"\x08\x08:3\x0a\x0c\x0a\x01x\x12\x01y\x22\x04Relu\x12\x01wZ\x0f\x0a\x01x\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01b\x0f\x0a\x01y\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01B\x02\x10\x11";

/// Opens and closes a session on the CPU. ONNX Runtime queries the processor and the system when it opens the
/// first session. No thread remains.
pub(crate) fn warm_up() -> Result<(), EngineError> {
    let options = SessionOptions {
        arena: false,
        ..SessionOptions::default()
    };
    Session::open(SMALLEST, &options).map(drop)
}

/// Checks without a model that sessions can be opened on `device`.
pub(crate) fn check_device(device: Device) -> Result<(), EngineError> {
    let options = SessionOptions {
        device,
        ..SessionOptions::default()
    };
    builder(&options).map(drop)
}

pub(crate) fn builder(options: &SessionOptions) -> Result<SessionBuilder, EngineError> {
    builder_without(&[], options)
}

pub(crate) fn builder_for(model: &[u8], options: &SessionOptions) -> Result<SessionBuilder, EngineError> {
    match options.device == Device::Cpu && has_half_weights(model) {
        true => builder_without(&[LAYOUT_CHANGE], options),
        false => builder(options),
    }
}

fn builder_without(optimizers: &[&str], options: &SessionOptions) -> Result<SessionBuilder, EngineError> {
    let fusion = (!options.fused_transposes).then_some(TRANSPOSE_FUSION);
    let disabled: Vec<&str> = optimizers.iter().copied().chain(fusion).collect();
    let level = match options.optimizations {
        true => GraphOptimizationLevel::All,
        false => GraphOptimizationLevel::Disable,
    };
    let environment = library::environment()?;
    let configured = SessionBuilder::new(&environment).and_then(|builder| {
        Ok(builder
            .with_optimization_level(level)?
            .with_intra_threads(options.threads.max(1))?
            .with_inter_threads(1)?
            .with_parallel_execution(false)?
            .with_intra_op_spinning(false)?
            .with_inter_op_spinning(false)?
            // With memory patterns, ONNX Runtime allocates a single block for all tensors of an execution, in
            // addition to the memory that the arena still holds from the first execution. For the last layers
            // of MobileNetV3, patterns increased the memory of a step from 127 to 228 MB and its time from 63
            // to 74 ms.
            .with_memory_pattern(false)?
            .with_deterministic_compute(true)?
            .with_execution_providers([CPU::default().with_arena_allocator(options.arena).build()])?)
    });
    let configured = configured.and_then(|builder| match disabled.is_empty() {
        true => Ok(builder),
        false => {
            let disabled = disabled.join(";");
            Ok(builder.with_config_entry("optimization.disable_specified_optimizers", disabled)?)
        }
    });
    let builder = configured.map_err(EngineError::internal("prepare a session"))?;
    match options.device {
        Device::Cpu => Ok(builder),
        Device::Cuda(index) => on_cuda(builder, index, options),
    }
}

/// Adds the CUDA provider.
///
/// # Errors
/// Returns [`EngineError::Device`] with the reason if the GPU is not usable, and [`EngineError::Internal`] if
/// ONNX Runtime cannot list its devices.
fn on_cuda(
    builder: SessionBuilder,
    index: u32,
    options: &SessionOptions,
) -> Result<SessionBuilder, EngineError> {
    if !CUDA::is_available().map_err(EngineError::internal("list its devices"))? {
        let library = library::library_path()?;
        return Err(absent(
            index,
            format!(
                "{} was built without CUDA; set ORT_DYLIB_PATH to the library of onnxruntime-gpu, or use `cpu`",
                library.display()
            ),
        ));
    }
    let device_id = i32::try_from(index).map_err(|_| absent(index, "the index exceeds CUDA's range"))?;
    let provider = crate::cuda::provider(device_id, options)
        .build()
        .error_on_failure();
    builder.with_execution_providers([provider]).map_err(|error| {
        absent(
            index,
            format!(
                "{}; check this machine's driver, CUDA and cuDNN, or use `cpu`",
                error.message()
            ),
        )
    })
}

fn absent(index: u32, reason: impl Into<String>) -> EngineError {
    EngineError::Device {
        device: Device::Cuda(index),
        reason: reason.into(),
    }
}
