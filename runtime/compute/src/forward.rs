use crate::error::ComputeError;
use frostline_engine::{Device, EngineError, Interrupt, Session, SessionOptions};
use frostline_graph::onnx::data_type;
use frostline_graph::tensors::to_float;
use frostline_graph::{EncodedModel, Model, ONE_FILE};
use frostline_profile::efficient_rows;
use frostline_tensor::{DType, Data, Tensor};

/// Maximum number of rows per execution on a CPU. At the widest cuts of known networks, 16 rows need 50 MB.
const CPU_ROWS: usize = 16;

/// Returns session options with `wanted` threads, or one thread per core if `wanted` is 0.
pub fn session_options(device: Device, wanted: usize) -> SessionOptions {
    SessionOptions {
        device,
        threads: if wanted == 0 {
            std::thread::available_parallelism().map_or(1, usize::from)
        } else {
            wanted
        },
        ..SessionOptions::default()
    }
}

/// Maximum number of rows per execution on `device`, for any network.
pub fn most_rows(device: Device) -> usize {
    device.padded_rows().unwrap_or(CPU_ROWS)
}

/// Maximum number of rows per execution of `model`. On a CPU this is the efficient batch, but not less than
/// one row per thread.
fn rows_for(model: &Model, options: &SessionOptions) -> Result<usize, ComputeError> {
    let most = most_rows(options.device);
    Ok(match options.device {
        Device::Cpu => efficient_rows(model, most)?.max(options.threads).min(most),
        Device::Cuda(_) => most,
    })
}

/// Rows per execution to measure for batches of `batch` samples. On a GPU this is the size of every
/// execution. On a CPU it is the maximum, because the time of smaller executions is computed from it.
///
/// # Errors
/// Returns [`ComputeError::Graph`] if the shapes in the model are invalid.
pub fn measured_rows(model: &Model, batch: usize, options: &SessionOptions) -> Result<usize, ComputeError> {
    let most = rows_for(model, options)?;
    Ok(match options.device {
        Device::Cpu => most,
        Device::Cuda(_) => rows_per_execution(batch, most),
    })
}

/// Returns true if a layer has values in bfloat16.
pub(crate) fn has_bf16(model: &Model) -> Result<bool, ComputeError> {
    let shapes = model.shapes(1)?;
    let mut values = model.nodes().iter().flat_map(|node| &node.output);
    Ok(values.any(|name| {
        let value = shapes.get(name);
        value.is_some_and(|value| value.data_type == data_type::BFLOAT16)
    }))
}

/// Forward pass of partial networks, for any batch size. A batch is executed in equal parts of up to
/// [`most_rows`] rows, and the last part is padded.
pub struct Forward {
    session: Session,
    /// Rows per execution. Smaller batches are padded: ONNX Runtime kernels can round differently at
    /// different batch sizes, and padding makes results independent of batching.
    rows: usize,
    input: String,
    dtype: Option<DType>,
    interrupt: Interrupt,
    doing: &'static str,
}

impl Forward {
    /// Opens a partial network with a single input and output for batches of about `batch` rows. `interrupt`
    /// ends a computation early. `doing` describes the computation in errors.
    ///
    /// # Errors
    /// Returns [`ComputeError::Bfloat16`] if the network has values in bfloat16 and the engine cannot load it,
    /// [`ComputeError::Engine`] for other failures of the engine, and [`ComputeError::Graph`] if the model is
    /// invalid.
    pub fn open(
        model: &Model,
        batch: usize,
        options: &SessionOptions,
        interrupt: &Interrupt,
        doing: &'static str,
    ) -> Result<Self, ComputeError> {
        let rows = rows_per_execution(batch, rows_for(model, options)?);
        match Self::open_parts(model.to_parts(ONE_FILE)?, rows, options, interrupt, doing) {
            Err(ComputeError::Engine {
                source: source @ EngineError::Model { .. },
                ..
            }) if has_bf16(model)? => Err(ComputeError::Bfloat16 {
                device: options.device,
                source,
            }),
            opened => opened,
        }
    }

    fn open_parts(
        EncodedModel { model, weights }: EncodedModel,
        rows: usize,
        options: &SessionOptions,
        interrupt: &Interrupt,
        doing: &'static str,
    ) -> Result<Self, ComputeError> {
        let session = match weights {
            None => Session::open_until(&model, options, interrupt),
            Some(weights) => Session::open_beside(&model, EncodedModel::WEIGHTS, weights, options, interrupt),
        };
        let session = session.map_err(ComputeError::engine(doing))?;
        let input = session.inputs().first();
        let dtype = input.and_then(|slot| slot.dtype);
        let input = input.map(|slot| slot.name.clone()).unwrap_or_default();
        Ok(Self {
            session,
            rows,
            input,
            dtype,
            interrupt: interrupt.clone(),
            doing,
        })
    }

    /// Returns the output `[rows, ..]` for `rows`, which are converted to the floating-point type of the input.
    ///
    /// # Errors
    /// Returns [`ComputeError::Engine`] if the engine fails, and [`ComputeError::Shape`] if `rows` has no batch
    /// axis.
    pub fn run(&mut self, rows: &Tensor) -> Result<Tensor, ComputeError> {
        let dtype = self.dtype.filter(|dtype| *dtype != rows.dtype());
        let converted = dtype.and_then(|dtype| to_float(rows, dtype));
        let rows = converted.as_ref().unwrap_or(rows);
        let count = rows.rows()?;
        let mut outputs = Vec::with_capacity(count.div_ceil(self.rows));
        for start in (0..count).step_by(self.rows) {
            let end = count.min(start + self.rows);
            let output = self.run_filled(&rows.slice_rows(start, end)?)?;
            outputs.push(output.slice_rows(0, end - start)?);
        }
        Ok(Tensor::concat_rows(&outputs)?)
    }

    fn run_filled(&mut self, rows: &Tensor) -> Result<Tensor, ComputeError> {
        let missing = self.rows - rows.rows()?.min(self.rows);
        let filled = match missing {
            0 => None,
            _ => Some(Tensor::concat_rows(&[rows.clone(), zeros(rows, missing)?])?),
        };
        let inputs = [(self.input.as_str(), filled.as_ref().unwrap_or(rows))];
        let outputs = self
            .session
            .run_until(&inputs, &self.interrupt)
            .map_err(ComputeError::engine(self.doing))?;
        let first = outputs.into_iter().next().map(|(_, tensor)| tensor);
        first.ok_or(ComputeError::Ended { part: "engine" })
    }
}

/// Divides a batch into executions of equal size with up to `most` rows, which minimizes padding.
fn rows_per_execution(batch: usize, most: usize) -> usize {
    let batch = batch.max(1);
    batch.div_ceil(batch.div_ceil(most))
}

fn zeros(like: &Tensor, count: usize) -> Result<Tensor, ComputeError> {
    let shape = like.shape().row()?.batched(count);
    let elements = shape.elements()?;
    let bytes = vec![0; elements * like.dtype().size()];
    let data = Data::from_bytes(like.dtype(), &bytes).ok_or(ComputeError::Ended { part: "engine" })?;
    Ok(Tensor::new(shape, data)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::network;

    #[test]
    fn weights_beside_the_model_give_the_same_output() {
        let open = |limit| {
            let options = SessionOptions::default();
            let interrupt = Interrupt::new();
            let parts = network().to_parts(limit).unwrap();
            Forward::open_parts(parts, 4, &options, &interrupt, "testing").unwrap()
        };
        let pixels = (0..2 * 3 * 8 * 8).map(|index| (index % 11) as f32 / 11.0);
        let rows = Tensor::f32([2, 3, 8, 8], pixels.collect()).unwrap();
        let beside = network().to_parts(1500).unwrap();
        let whole = network().to_bytes().unwrap();
        assert!(beside.weights.is_some() && beside.model.len() < whole.len());
        assert_eq!(open(1500).run(&rows).unwrap(), open(ONE_FILE).run(&rows).unwrap());
    }

    #[test]
    fn a_gpu_is_measured_with_the_rows_of_an_execution() {
        let measured = |device, batch| {
            let options = SessionOptions {
                device,
                ..SessionOptions::default()
            };
            measured_rows(&network(), batch, &options).unwrap()
        };
        let rows = [8, 40, 64, 100].map(|batch| measured(Device::Cuda(0), batch));
        assert_eq!(rows, [8, 20, 32, 25]);
        assert_eq!(measured(Device::Cpu, 8), measured(Device::Cpu, 100));
    }

    #[test]
    fn runs_of_a_batch_are_equal_and_never_large() {
        let rows: Vec<usize> = [0, 1, 8, 16, 17, 20, 64, 100]
            .map(|batch| rows_per_execution(batch, 16))
            .to_vec();
        assert_eq!(rows, [1, 1, 8, 16, 9, 10, 16, 15]);
    }
}
