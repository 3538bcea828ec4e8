//! Input and output buffers that a lane reuses for the next engine batch.
//!
//! ONNX Runtime reads the batch from these buffers and writes the output to them. For a GPU the input buffer
//! is pinned, so the driver copies it without the CPU. The first access to new memory costs several times as
//! much as a copy. Unbound outputs use new memory if the arena is disabled.

use crate::interrupt::Target;
use crate::normalizer::Normalizer;
use crate::session::find_output;
use crate::tensor_spec::TensorSpec;
use crate::values::{self, View};
use crate::{Device, EngineError, Interrupt, Session};
use frostline_tensor::{DType, Normalization, Stage, Tensor};
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{IoBinding, RunOptions, SessionOutputs};
use ort::value::DynTensor;
use std::sync::Arc;

/// Maximum size of a reused buffer. It can store the pixels of 64 samples (39 MB) or 64 of ResNet50's largest
/// activations (206 MB).
const KEPT_BYTES: usize = 256 << 20;

/// Buffers of a lane.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    input: Option<DynTensor>,
    pub(crate) output: Option<DynTensor>,
    normalizer: Option<Normalizer>,
}

/// Execution of a stage on a batch.
#[derive(Clone, Copy)]
pub(crate) struct StageRun<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) batch: &'a Tensor,
    pub(crate) interrupt: &'a Interrupt,
}

impl Session {
    /// Runs the network on the batch, which is normalized first if it contains pixels. Calls `take` with the
    /// output in ONNX Runtime's memory.
    ///
    /// # Errors
    /// Returns the errors of [`Session::run_until`]. Returns [`EngineError::UnknownOutput`] before the
    /// execution if the network has no such output, and [`EngineError::Run`] if the shape of the output
    /// differs from the declared one.
    pub(crate) fn run_bound<T>(
        &mut self,
        staging: &mut Staging,
        run: StageRun<'_>,
        take: impl FnOnce(View<'_>) -> T,
    ) -> Result<T, EngineError> {
        let to = &run.stage.to;
        let made = self.output(to)?.batch_of(run.batch.rows().unwrap_or_default());
        let made = made.filter(|made| is_kept(Some(made.bytes())));
        self.check_batch(run)?;
        if let Some(made) = &made
            && let Some(fixed) = self.take_fixed(run, made)?
        {
            let ran = self.run_captured(staging, fixed, run, take);
            staging.settle();
            return ran;
        }
        let doing = "allocate the memory of a batch";
        let binding = self.inner.create_binding();
        let mut binding = binding.map_err(EngineError::internal(doing))?;
        self.bind_batch(&mut binding, staging, run)?;
        self.bind_made(&mut binding, staging, to, made)
            .map_err(EngineError::internal(doing))?;
        let options = self.run_options(false)?;
        let ran = self.run_binding(&binding, options, run.interrupt, |outputs| {
            values::view(to, find_output(outputs, to)?, take)
        });
        staging.settle();
        ran
    }

    /// Checks that the network accepts the batch, or the normalized batch if it contains pixels.
    fn check_batch(&self, StageRun { stage, batch, .. }: StageRun<'_>) -> Result<(), EngineError> {
        let slot = self.input(&stage.from)?;
        match stage.pixels {
            None => slot.check(batch.dtype(), batch.shape()),
            Some(_) if batch.dtype() == DType::U8 && matches!(batch.shape().dims(), [_, 3, _, _]) => {
                slot.check(DType::F32, batch.shape())
            }
            Some(_) => Err(EngineError::InputMismatch {
                name: stage.from.clone(),
                expected: "pixels, u8[n, 3, h, w]".to_owned(),
                actual: batch.describe(),
            }),
        }
    }

    /// Copies the batch to the input buffer and binds it. Pixels are normalized by the CPU while they are
    /// copied, or by the session's device afterwards.
    fn bind_batch(
        &self,
        binding: &mut IoBinding,
        staging: &mut Staging,
        StageRun {
            stage,
            batch,
            interrupt,
        }: StageRun<'_>,
    ) -> Result<(), EngineError> {
        let from = &stage.from;
        let on_cpu = stage.pixels.filter(|_| self.device == Device::Cpu);
        let staged = self.write_input(&mut staging.input, batch, on_cpu);
        let input = staged.map_err(copy_failed)?;
        match stage.pixels {
            Some(pixels) if on_cpu.is_none() => {
                let normalizer = opened(&mut staging.normalizer, self.device)?;
                let floats = normalizer.run(input, pixels, None, interrupt)?;
                binding.bind_input(from, &floats).map_err(copy_failed)
            }
            _ => binding.bind_input(from, input).map_err(copy_failed),
        }
    }

    /// Writes the batch to `to`, a tensor on the session's device. Pixels are normalized by the device.
    pub(crate) fn fill(
        &self,
        to: &mut DynTensor,
        staging: &mut Staging,
        StageRun {
            stage,
            batch,
            interrupt,
        }: StageRun<'_>,
    ) -> Result<(), EngineError> {
        let staged = self.write_input(&mut staging.input, batch, None);
        let input = staged.map_err(copy_failed)?;
        let Some(pixels) = stage.pixels else {
            return input.copy_into(to).map_err(copy_failed);
        };
        let normalizer = opened(&mut staging.normalizer, self.device)?;
        normalizer.run(input, pixels, Some(to), interrupt).map(drop)
    }

    /// Copies the batch to the input buffer in `kept`. Pixels are normalized if `normalization` is given.
    fn write_input<'a>(
        &self,
        kept: &'a mut Option<DynTensor>,
        batch: &Tensor,
        normalization: Option<Normalization>,
    ) -> ort::Result<&'a mut DynTensor> {
        let spec = TensorSpec {
            dtype: normalization.map_or(batch.dtype(), |_| DType::F32),
            shape: batch.shape().clone(),
        };
        let input = reserve(kept, &self.input_memory()?, &spec)?;
        match normalization {
            Some(pixels) => values::write_pixels(batch, pixels, input)?,
            None => values::write(batch, input)?,
        }
        Ok(input)
    }

    /// Binds the output to the output buffer if its shape is known.
    fn bind_made(
        &self,
        binding: &mut IoBinding,
        staging: &mut Staging,
        to: &str,
        made: Option<TensorSpec>,
    ) -> ort::Result<()> {
        match made {
            Some(made) => {
                // Not pinned: ONNX Runtime 1.31 copies a pinned output onto itself, and then refuses that (onnxruntime#29713).
                let memory = Allocator::default();
                binding.bind_output(to, reserve(&mut staging.output, &memory, &made)?)
            }
            None => binding.bind_output_to_device(to, &Device::Cpu.memory()?),
        }
    }

    /// Returns an allocator of host memory for input buffers. For a GPU this is pinned memory.
    fn input_memory(&self) -> ort::Result<Allocator> {
        match self.device {
            Device::Cpu => Ok(Allocator::default()),
            Device::Cuda(_) => {
                let pinned = AllocationDevice::CUDA_PINNED;
                let index = self.device.index();
                let kind = MemoryType::CPUInput;
                Allocator::new(
                    &self.inner,
                    MemoryInfo::new(pinned, index, AllocatorType::Device, kind)?,
                )
            }
        }
    }

    /// Runs the network on the bound tensors and calls `take` with the outputs.
    pub(crate) fn run_binding<T>(
        &mut self,
        binding: &IoBinding,
        options: RunOptions,
        interrupt: &Interrupt,
        take: impl FnOnce(&mut SessionOutputs<'_>) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let options = Arc::new(options);
        let guarded = interrupt.guard(Target::Run(Arc::clone(&options)))?;
        let ran = self.inner.run_binding_with_options(binding, &options);
        drop(guarded);
        take(&mut ran.map_err(|error| EngineError::of_run(error.message()).or_interrupted(interrupt))?)
    }
}

impl Staging {
    /// Returns the size of the buffers in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let kept = [&self.input, &self.output].into_iter().flatten();
        kept.filter_map(byte_len).sum()
    }

    /// Frees the buffers that are larger than [`KEPT_BYTES`].
    fn settle(&mut self) {
        for kept in [&mut self.input, &mut self.output] {
            *kept = kept.take().filter(|tensor| is_kept(byte_len(tensor)));
        }
    }
}

/// Returns the normalizer in `kept`, which is opened on the first use.
fn opened(kept: &mut Option<Normalizer>, device: Device) -> Result<&mut Normalizer, EngineError> {
    let normalizer = match kept.take() {
        Some(normalizer) => normalizer,
        None => Normalizer::open(device)?,
    };
    Ok(kept.insert(normalizer))
}

fn is_kept(bytes: Option<usize>) -> bool {
    bytes.is_some_and(|bytes| bytes <= KEPT_BYTES)
}

/// Returns the buffer in `kept` if it has this type and shape. Otherwise replaces it by a new one in
/// `memory`. New buffers contain zeros, because a kernel may leave the output unwritten and earlier contents
/// must not be revealed.
pub(crate) fn reserve<'a>(
    kept: &'a mut Option<DynTensor>,
    memory: &Allocator,
    spec: &TensorSpec,
) -> ort::Result<&'a mut DynTensor> {
    let fitting = kept.take().filter(|tensor| is_of(tensor, spec));
    let tensor = match fitting {
        Some(tensor) => tensor,
        None => {
            let mut fresh = DynTensor::new(memory, values::element_type(spec.dtype), spec.shape.dims())?;
            values::clear(&mut fresh)?;
            fresh
        }
    };
    Ok(kept.insert(tensor))
}

pub(crate) fn is_of(tensor: &DynTensor, spec: &TensorSpec) -> bool {
    values::spec(tensor).is_some_and(|found| found == *spec)
}

fn byte_len(tensor: &DynTensor) -> Option<usize> {
    let size = values::dtype(*tensor.data_type())?.size();
    tensor.shape().num_elements().checked_mul(size)
}

pub(crate) fn copy_failed(error: ort::Error) -> EngineError {
    EngineError::internal("copy the batch")(error)
}
