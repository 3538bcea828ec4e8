use crate::interrupt::Target;
use crate::prepared::{NETWORK, WEIGHTS, try_out};
use crate::{Device, EngineError, Interrupt, TensorSlot, library, slot, values};
use frostline_tensor::{Precision, Tensor};
use ort::ep::cuda::ConvAlgorithmSearch;
use ort::ep::{ArenaExtendStrategy, CPU, CUDA, ExecutionProvider};
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::session::{RunOptions, SessionInputValue, SessionOutputs};
use ort::value::DynValue;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// ONNX Runtime's name for what makes a Gemm of Transpose and Gemm.
const TRANSPOSE_FUSION: &str = "GemmTransposeFusion";

/// How a session runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOptions {
    /// Where.
    pub device: Device,
    /// Threads one operator may use; 0 counts as 1. They sleep between runs: spinning threads of two sessions on the same
    /// cores slowed ResNet50 from 41 to 1,138 ms an image.
    pub threads: usize,
    /// Whether ONNX Runtime keeps the CPU's memory of one run for the next. Without, what a run
    /// takes grows evenly with its rows and goes back when it ends.
    pub arena: bool,
    /// How exactly a GPU has to compute.
    pub precision: Precision,
    /// Bytes of a GPU that ONNX Runtime's arena may have. It bounds nothing else: CUDA's context, the kernels' code and the work space of
    /// cuDNN and cuBLAS lie beside it.
    pub arena_bytes: Option<u64>,
    /// Whether a transposed operand is read by the matrix product itself, instead of being written in order first. That is less memory, and slower
    /// where a training step transposes the smaller operand on purpose.
    pub fused_transposes: bool,
}

impl Default for SessionOptions {
    /// The CPU, one thread.
    fn default() -> Self {
        Self {
            device: Device::Cpu,
            threads: 1,
            arena: true,
            precision: Precision::Full,
            arena_bytes: None,
            fused_transposes: true,
        }
    }
}

/// One network in ONNX Runtime, ready to run. Belongs to one thread at a time.
#[derive(Debug)]
pub struct Session {
    pub(crate) inner: ort::session::Session,
    pub(crate) device: Device,
    inputs: Vec<TensorSlot>,
    outputs: Vec<TensorSlot>,
    /// The outputs of a step that are written over what they replace.
    pub(crate) in_place: BTreeSet<String>,
}

impl Session {
    /// Loads and optimizes the ONNX model `model` (the file's bytes, without external data).
    ///
    /// # Errors
    /// [`EngineError::LibraryMissing`], [`EngineError::LibraryUnusable`], [`EngineError::Device`] when the device is
    /// absent, [`EngineError::Model`] with ONNX Runtime's text when the model cannot be used.
    pub fn open(model: &[u8], options: &SessionOptions) -> Result<Self, EngineError> {
        Self::open_until(model, options, &Interrupt::new())
    }

    /// [`Session::open`], ended early by `interrupt`.
    ///
    /// # Errors
    /// Also [`EngineError::Interrupted`].
    pub fn open_until(
        model: &[u8],
        options: &SessionOptions,
        interrupt: &Interrupt,
    ) -> Result<Self, EngineError> {
        Self::load(builder(options)?, model, options, interrupt)
    }

    /// [`Session::open_until`] of a model whose weights lie outside it: `weights` are the bytes of the file that it calls `name`. So a
    /// network may take more than the 2 GiB that one file holds.
    ///
    /// # Errors
    /// As [`Session::open_until`].
    pub fn open_beside(
        model: &[u8],
        name: &str,
        weights: Arc<[u8]>,
        options: &SessionOptions,
        interrupt: &Interrupt,
    ) -> Result<Self, EngineError> {
        let builder = builder(options)?.with_external_initializer_file_in_memory(name, weights);
        let builder = builder.map_err(|error| EngineError::Model {
            reason: error.message().to_owned(),
        })?;
        Self::load(builder, model, options, interrupt)
    }

    /// Saves `model` to `folder` as [`Session::open_prepared`] takes it: optimized for `options` on this processor, its weights laid out
    /// as kernels read them, in a file of their own. Runs both forms to compare them.
    ///
    /// # Errors
    /// As [`Session::open_until`]; [`EngineError::Model`] if a file cannot be written, or computes another output than `model`.
    pub(crate) fn prepare(
        model: &[u8],
        folder: &Path,
        options: &SessionOptions,
        interrupt: &Interrupt,
    ) -> Result<(), EngineError> {
        let entries = [
            ("session.optimized_model_external_initializers_file_name", WEIGHTS),
            (
                "session.optimized_model_external_initializers_min_size_in_bytes",
                "1024",
            ),
            ("session.save_external_prepacked_constant_initializers", "1"),
        ];
        let mut builder = builder(options)?.with_optimized_model_path(folder.join(NETWORK));
        for (key, value) in entries {
            builder = match builder {
                Ok(builder) => builder.with_config_entry(key, value),
                failed => failed,
            };
        }
        let builder = builder.map_err(EngineError::internal("prepare a session"))?;
        let expected = try_out(&mut Self::load(builder, model, options, interrupt)?, interrupt)?;
        let prepared = try_out(&mut Self::open_prepared(folder, options, interrupt)?, interrupt)?;
        if prepared != expected {
            let reason = "its prepared form computes another output".to_owned();
            return Err(EngineError::Model { reason });
        }
        Ok(())
    }

    /// [`Session::open_until`] of what [`Session::prepare`] left in `folder`. Its weights are mapped: they take memory once for all
    /// processes, as far as it is not needed elsewhere.
    ///
    /// # Errors
    /// As [`Session::open_until`].
    pub(crate) fn open_prepared(
        folder: &Path,
        options: &SessionOptions,
        interrupt: &Interrupt,
    ) -> Result<Self, EngineError> {
        let file = folder.join(NETWORK);
        Self::commit(builder(options)?, options, interrupt, |builder| {
            builder.commit_from_file(&file)
        })
    }

    fn load(
        builder: SessionBuilder,
        model: &[u8],
        options: &SessionOptions,
        interrupt: &Interrupt,
    ) -> Result<Self, EngineError> {
        Self::commit(builder, options, interrupt, |builder| {
            builder.commit_from_memory(model)
        })
    }

    fn commit(
        mut builder: SessionBuilder,
        options: &SessionOptions,
        interrupt: &Interrupt,
        commit: impl FnOnce(&mut SessionBuilder) -> ort::Result<ort::session::Session>,
    ) -> Result<Self, EngineError> {
        let guarded = interrupt.guard(Target::Load(builder.canceler()))?;
        // ort asserts where it reads the declared types, and a stranger may declare anything.
        let committed = catch_unwind(AssertUnwindSafe(|| commit(&mut builder)));
        drop(guarded);
        let inner = match committed {
            Ok(Ok(inner)) => inner,
            Ok(Err(error)) => {
                return Err(EngineError::of_load(error.message()).or_interrupted(interrupt));
            }
            Err(_) => {
                return Err(EngineError::Model {
                    reason: "an input or output is of a kind that is not understood".into(),
                });
            }
        };
        Ok(Self::new(inner, options.device))
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
        }
    }

    /// The inputs, in the model's order.
    pub fn inputs(&self) -> &[TensorSlot] {
        &self.inputs
    }

    /// The outputs, in the model's order.
    pub fn outputs(&self) -> &[TensorSlot] {
        &self.outputs
    }

    /// Runs the network on `inputs`, each named once, and returns all outputs in the model's order.
    ///
    /// Inputs are not copied; outputs are copied once, out of ONNX Runtime's memory.
    ///
    /// # Errors
    /// An input that is unknown, missing or does not fit; [`EngineError::OutputType`] for an output that is no tensor of
    /// a known type; [`EngineError::Run`] with ONNX Runtime's text when a kernel fails.
    pub fn run(&mut self, inputs: &[(&str, &Tensor)]) -> Result<Vec<(String, Tensor)>, EngineError> {
        self.run_until(inputs, &Interrupt::new())
    }

    /// [`Session::run`], ended early by `interrupt`.
    ///
    /// # Errors
    /// Also [`EngineError::Interrupted`].
    pub fn run_until(
        &mut self,
        inputs: &[(&str, &Tensor)],
        interrupt: &Interrupt,
    ) -> Result<Vec<(String, Tensor)>, EngineError> {
        self.check_inputs(inputs, &[])?;
        let bound = borrow_all(inputs)?;
        let names: Vec<String> = self.outputs.iter().map(|slot| slot.name.clone()).collect();
        self.run_values(bound, interrupt, |outputs| {
            names
                .into_iter()
                .map(|name| extract_output(outputs, &name).map(|tensor| (name, tensor)))
                .collect()
        })
    }

    /// Runs on ONNX Runtime's own values and lets `take` have the outputs.
    pub(crate) fn run_values<T>(
        &mut self,
        inputs: Vec<(Cow<'_, str>, SessionInputValue<'_>)>,
        interrupt: &Interrupt,
        take: impl FnOnce(&mut SessionOutputs<'_>) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let options = Arc::new(RunOptions::new().map_err(EngineError::internal("prepare a run"))?);
        let guarded = interrupt.guard(Target::Run(Arc::clone(&options)))?;
        let ran = self.inner.run_with_options(inputs, &options);
        drop(guarded);
        match ran {
            Ok(mut outputs) => take(&mut outputs),
            Err(error) => Err(EngineError::of_run(error.message()).or_interrupted(interrupt)),
        }
    }

    /// Every input of the model must be in `inputs`, where it must fit, or in `elsewhere`, and once.
    pub(crate) fn check_inputs(
        &self,
        inputs: &[(&str, &Tensor)],
        elsewhere: &[&str],
    ) -> Result<(), EngineError> {
        let given = || {
            inputs
                .iter()
                .map(|(name, _)| *name)
                .chain(elsewhere.iter().copied())
        };
        for name in given() {
            self.input(name)?;
        }
        for slot in &self.inputs {
            let times = given().filter(|name| *name == slot.name).count();
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

/// The inputs under their names, without a copy.
pub(crate) fn borrow_all<'a>(
    inputs: &[(&'a str, &'a Tensor)],
) -> Result<Vec<(Cow<'a, str>, SessionInputValue<'a>)>, EngineError> {
    inputs
        .iter()
        .map(|(name, tensor)| Ok((Cow::Borrowed(*name), values::borrow(tensor)?)))
        .collect()
}

/// The output `name`, which the session is known to have.
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

/// A network of one Relu, as ONNX.
const SMALLEST: &[u8] = b"\x08\x08:3\x0a\x0c\x0a\x01x\x12\x01y\x22\x04Relu\x12\x01wZ\x0f\x0a\x01x\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01b\x0f\x0a\x01y\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01B\x02\x10\x11";

/// Has ONNX Runtime look at the processor and whatever else it reads of the system once, which it does when it opens its first session on
/// a CPU. No thread is left.
pub(crate) fn warm_up() -> Result<(), EngineError> {
    let options = SessionOptions {
        arena: false,
        ..SessionOptions::default()
    };
    Session::open(SMALLEST, &options).map(drop)
}

/// Whether sessions could be opened on `device`, without a model.
pub(crate) fn check_device(device: Device) -> Result<(), EngineError> {
    let options = SessionOptions {
        device,
        ..SessionOptions::default()
    };
    builder(&options).map(drop)
}

pub(crate) fn builder(options: &SessionOptions) -> Result<SessionBuilder, EngineError> {
    let environment = library::environment()?;
    let configured = SessionBuilder::new(&environment).and_then(|builder| {
        Ok(builder
            .with_optimization_level(GraphOptimizationLevel::All)?
            .with_intra_threads(options.threads.max(1))?
            .with_inter_threads(1)?
            .with_parallel_execution(false)?
            .with_intra_op_spinning(false)?
            .with_inter_op_spinning(false)?
            // A block laid out for all tensors of a run lies beside what the first run left in the arena, and is larger than that: a step of
            // MobileNetV3's end took 228 MB with it, 127 without, and 74 ms instead of 63.
            .with_memory_pattern(false)?
            .with_deterministic_compute(true)?
            .with_execution_providers([CPU::default().with_arena_allocator(options.arena).build()])?)
    });
    let configured = configured.and_then(|builder| match options.fused_transposes {
        true => Ok(builder),
        false => {
            Ok(builder.with_config_entry("optimization.disable_specified_optimizers", TRANSPOSE_FUSION)?)
        }
    });
    let builder = configured.map_err(EngineError::internal("prepare a session"))?;
    match options.device {
        Device::Cpu => Ok(builder),
        Device::Cuda(index) => on_cuda(builder, index, options),
    }
}

/// Puts the session on a GPU, or says why that cannot be.
fn on_cuda(
    builder: SessionBuilder,
    index: u32,
    options: &SessionOptions,
) -> Result<SessionBuilder, EngineError> {
    let absent = |reason: String| EngineError::Device {
        device: Device::Cuda(index),
        reason,
    };
    if !CUDA::is_available().map_err(EngineError::internal("list its devices"))? {
        let library = library::library_path()?;
        return Err(absent(format!(
            "{} was built without CUDA; set ORT_DYLIB_PATH to the library of onnxruntime-gpu, or use `cpu`",
            library.display()
        )));
    }
    let device_id = i32::try_from(index).map_err(|_| absent("CUDA has no device of that index".into()))?;
    // TF32 keeps 10 bits of each product's fraction: losses depend on where the split lies, so it is only for who allows that. Its tensor
    // cores read NHWC: a quarter faster there (ResNet50 on an H200), a seventh slower in full precision. An arena that doubles takes memory
    // that no run asked for. Another search for algorithms and more workspace gain nothing.
    let on_tensor_cores = options.precision == Precision::Tf32;
    let mut provider = CUDA::default()
        .with_device_id(device_id)
        .with_tf32(on_tensor_cores)
        .with_arena_extend_strategy(ArenaExtendStrategy::SameAsRequested)
        .with_conv_algorithm_search(ConvAlgorithmSearch::Heuristic)
        .with_conv_max_workspace(false)
        .with_prefer_nhwc(on_tensor_cores);
    if let Some(bytes) = options.arena_bytes {
        provider = provider.with_memory_limit(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
    let provider = provider.build().error_on_failure();
    builder.with_execution_providers([provider]).map_err(|error| {
        absent(format!(
            "{}; check the driver, CUDA and cuDNN of this machine, or use `cpu`",
            error.message()
        ))
    })
}
