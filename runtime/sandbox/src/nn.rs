//! Implements `wasi:nn`. Tensors are handles charged to the extraction, and graphs are stages of the model.
//!
//! `compute` behaves like the crate wasmtime-wasi-nn. It consumes inputs even on failure, and errors of the
//! engine have the code `runtime-error` with an explanation.

use crate::bindings::wasi::nn::{errors, graph, inference, tensor};
use crate::breach::{self, ImportError, check_limit};
use crate::state::{CallState, Graph, GuestTensor};
use crate::text::{MAX_MESSAGE_BYTES, check_name, one_line};
use crate::{joined, stage_name};
use frostline_tensor::{DType, Data, OpError, OpErrorCode, Shape, Stage, Tensor};
use wasmtime::component::Resource;

/// Maximum number of dimensions of a tensor created by a guest. Real models have fewer, and a shape of this
/// length still fits into a message.
const MAX_RANK: usize = 16;

/// Result of a `wasi:nn` function. The guest receives the inner error; the outer error ends the call.
type OpResult<T> = wasmtime::Result<Result<T, Resource<OpError>>>;

impl CallState {
    fn answer<T>(&mut self, result: Result<T, ImportError>) -> OpResult<T> {
        match result {
            Ok(value) => Ok(Ok(value)),
            Err(ImportError::Guest(error)) => {
                self.record_host_error(&error);
                // Bounded, since guests may hold a thousand errors.
                let message = one_line(&error.message, MAX_MESSAGE_BYTES);
                Ok(Err(self.table.push(OpError { message, ..error })?))
            }
            Err(ImportError::Trap(error)) => Err(error),
        }
    }

    fn stage(&self, name: &str) -> Result<Stage, ImportError> {
        check_name(name)?;
        Ok(stage_name::resolve(name, &self.extraction()?.model)?)
    }

    async fn run(
        &mut self,
        stage: Stage,
        inputs: Vec<(String, GuestTensor)>,
    ) -> Result<Vec<inference::NamedTensor>, ImportError> {
        let extraction = self.extraction()?.clone();
        let model = &extraction.model;
        let allowance = &extraction.context.allowance;
        let input = match model.joins(&stage.from, &inputs) {
            true => joined::input(inputs, &model.joined_inputs, allowance)?,
            false => only_input(&stage, inputs)?,
        };
        let rows = check_rows(&input.tensor, model.sample_shape(&stage.from), &stage.from)?;
        let row = model.sample_shape(&stage.to).unwrap_or_else(|| Shape::new([]));
        let output = row.batched(rows);
        let bytes = output.bytes(DType::F32.size()).map_err(OpError::from)?;
        let charge = allowance.charge_tensor(bytes)?;
        let tensor = if rows == 0 {
            Tensor::f32(output, Vec::new()).map_err(OpError::from)?
        } else {
            let GuestTensor {
                tensor,
                pixels,
                charge: _charge,
            } = input;
            let stage = Stage {
                pixels,
                ..stage.clone()
            };
            let run = extraction.context.executor.submit(&stage, tensor);
            self.wait_for("a stage execution", run)
                .await
                .map_err(as_reference_error)?
        };
        Ok(vec![(stage.to, self.push_tensor(tensor, None, charge)?)])
    }
}

/// Replaces the error code by `runtime-error` like the reference host. Keeps the codes of limits and
/// deadlines.
fn as_reference_error(error: OpError) -> OpError {
    let code = match error.code {
        code @ (OpErrorCode::Timeout | OpErrorCode::TooLarge) => code,
        _ => OpErrorCode::RuntimeError,
    };
    OpError { code, ..error }
}

fn only_input(stage: &Stage, inputs: Vec<(String, GuestTensor)>) -> Result<GuestTensor, OpError> {
    let count = inputs.len();
    match inputs.into_iter().next() {
        Some((name, tensor)) if count == 1 && name == stage.from => Ok(tensor),
        Some((name, _)) if count == 1 => Err(OpError::runtime(format!(
            "the stage's input is {:?}, got {name:?}",
            stage.from
        ))),
        _ => Err(OpError::runtime(format!(
            "expected exactly one input, {:?}, got {count}",
            stage.from
        ))),
    }
}

fn check_rows(batch: &Tensor, row: Option<Shape>, name: &str) -> Result<usize, OpError> {
    let fits = row.filter(|row| batch.shape().row().is_ok_and(|given| given == *row));
    match (fits, batch.rows()) {
        (Some(_), Ok(rows)) => Ok(rows),
        _ => Err(OpError::runtime(format!(
            "{} does not match the shape of the stage's input {name:?}",
            batch.describe()
        ))),
    }
}

impl tensor::Host for CallState {}

impl tensor::HostTensor for CallState {
    fn new(
        &mut self,
        dimensions: Vec<u32>,
        ty: tensor::TensorType,
        data: Vec<u8>,
    ) -> wasmtime::Result<Resource<GuestTensor>> {
        let created = self
            .extraction()
            .map_err(ImportError::from)
            .and_then(|extraction| {
                let charge = extraction.context.allowance.charge_tensor(data.len())?;
                Ok((tensor_of(&dimensions, ty, &data)?, charge))
            });
        // Trap, since the constructor cannot return errors.
        let pushed = created.and_then(|(tensor, charge)| self.push_tensor(tensor, None, charge));
        pushed.map_err(|error| match error {
            ImportError::Guest(error) => {
                self.record_host_error(&error);
                wasmtime::Error::msg(error.message)
            }
            ImportError::Trap(error) => error,
        })
    }

    fn dimensions(&mut self, tensor: Resource<GuestTensor>) -> wasmtime::Result<Vec<u32>> {
        dims(self.table.get(&tensor)?)
    }

    fn ty(&mut self, tensor: Resource<GuestTensor>) -> wasmtime::Result<tensor::TensorType> {
        Ok(type_of(self.table.get(&tensor)?.dtype()))
    }

    fn data(&mut self, tensor: Resource<GuestTensor>) -> wasmtime::Result<Vec<u8>> {
        let held = self.table.get(&tensor)?;
        let bytes = held.tensor.shape().bytes(held.dtype().size())?;
        check_limit(breach::Resource::Memory, bytes as u64, self.memory_cap as u64)?;
        Ok(held.normalized()?.as_bytes().to_vec())
    }

    fn drop(&mut self, tensor: Resource<GuestTensor>) -> wasmtime::Result<()> {
        self.table.delete(tensor)?;
        Ok(())
    }
}

/// Returns the dimensions of a tensor for guests.
pub(crate) fn dims(held: &GuestTensor) -> wasmtime::Result<Vec<u32>> {
    let dims = held.tensor.shape().dims().iter();
    Ok(dims.map(|&dim| u32::try_from(dim)).collect::<Result<_, _>>()?)
}

/// Converts the dimensions of a tensor that a guest creates.
pub(crate) fn check_shape(dimensions: &[u32]) -> Result<Shape, OpError> {
    if dimensions.len() > MAX_RANK {
        return Err(OpError::invalid(format!(
            "a tensor has {} dimensions, at most {MAX_RANK} are supported",
            dimensions.len()
        )));
    }
    let dims: Result<Vec<usize>, _> = dimensions.iter().map(|&dim| usize::try_from(dim)).collect();
    let dims = dims.map_err(|_| OpError::invalid("a dimension exceeds this machine's address range"))?;
    Ok(Shape::new(dims))
}

fn tensor_of(dimensions: &[u32], ty: tensor::TensorType, bytes: &[u8]) -> Result<Tensor, OpError> {
    let shape = check_shape(dimensions)?;
    let dtype = dtype_of(ty);
    let data = Data::from_bytes(dtype, bytes).ok_or_else(|| {
        OpError::invalid(format!(
            "{} bytes are not a multiple of the size of {dtype}",
            bytes.len()
        ))
    })?;
    Ok(Tensor::new(shape, data)?)
}

const fn dtype_of(ty: tensor::TensorType) -> DType {
    match ty {
        tensor::TensorType::Fp16 => DType::F16,
        tensor::TensorType::Fp32 => DType::F32,
        tensor::TensorType::Fp64 => DType::F64,
        tensor::TensorType::Bf16 => DType::Bf16,
        tensor::TensorType::U8 => DType::U8,
        tensor::TensorType::I32 => DType::I32,
        tensor::TensorType::I64 => DType::I64,
    }
}

const fn type_of(dtype: DType) -> tensor::TensorType {
    match dtype {
        DType::F16 => tensor::TensorType::Fp16,
        DType::F32 => tensor::TensorType::Fp32,
        DType::F64 => tensor::TensorType::Fp64,
        DType::Bf16 => tensor::TensorType::Bf16,
        DType::U8 => tensor::TensorType::U8,
        DType::I32 => tensor::TensorType::I32,
        DType::I64 => tensor::TensorType::I64,
    }
}

impl graph::Host for CallState {
    fn load(
        &mut self,
        _: Vec<Vec<u8>>,
        _: graph::GraphEncoding,
        _: graph::ExecutionTarget,
    ) -> OpResult<Resource<Graph>> {
        let refusal = OpError::new(
            OpErrorCode::Security,
            "models cannot be loaded from bytes: upload the model and use load-by-name",
        );
        self.answer(Err(refusal.into()))
    }

    fn load_by_name(&mut self, name: String) -> OpResult<Resource<Graph>> {
        let graph = self
            .stage(&name)
            .and_then(|stage| Ok(self.table.push(Graph { stage })?));
        self.answer(graph)
    }
}

impl graph::HostGraph for CallState {
    fn init_execution_context(&mut self, graph: Resource<Graph>) -> OpResult<Resource<Graph>> {
        let graph = self.table.get(&graph)?.clone();
        Ok(Ok(self.table.push(graph)?))
    }

    fn drop(&mut self, graph: Resource<Graph>) -> wasmtime::Result<()> {
        self.table.delete(graph)?;
        Ok(())
    }
}

impl inference::Host for CallState {}

impl inference::HostGraphExecutionContext for CallState {
    async fn compute(
        &mut self,
        context: Resource<Graph>,
        inputs: Vec<inference::NamedTensor>,
    ) -> OpResult<Vec<inference::NamedTensor>> {
        let mut tensors = Vec::new();
        for (name, tensor) in inputs {
            tensors.push((name, self.table.delete(tensor)?));
        }
        let stage = self.table.get(&context)?.stage.clone();
        let outputs = self.run(stage, tensors).await;
        self.answer(outputs)
    }

    fn drop(&mut self, context: Resource<Graph>) -> wasmtime::Result<()> {
        self.table.delete(context)?;
        Ok(())
    }
}

impl errors::Host for CallState {}

impl errors::HostError for CallState {
    fn code(&mut self, error: Resource<OpError>) -> wasmtime::Result<errors::ErrorCode> {
        Ok(code_for_guest(self.table.get(&error)?.code))
    }

    fn data(&mut self, error: Resource<OpError>) -> wasmtime::Result<String> {
        Ok(self.table.get(&error)?.message.clone())
    }

    fn drop(&mut self, error: Resource<OpError>) -> wasmtime::Result<()> {
        self.table.delete(error)?;
        Ok(())
    }
}

const fn code_for_guest(code: OpErrorCode) -> errors::ErrorCode {
    match code {
        OpErrorCode::InvalidArgument => errors::ErrorCode::InvalidArgument,
        OpErrorCode::InvalidEncoding => errors::ErrorCode::InvalidEncoding,
        OpErrorCode::Timeout => errors::ErrorCode::Timeout,
        OpErrorCode::RuntimeError => errors::ErrorCode::RuntimeError,
        OpErrorCode::UnsupportedOperation => errors::ErrorCode::UnsupportedOperation,
        OpErrorCode::TooLarge => errors::ErrorCode::TooLarge,
        OpErrorCode::NotFound => errors::ErrorCode::NotFound,
        OpErrorCode::Security => errors::ErrorCode::Security,
        OpErrorCode::Unknown => errors::ErrorCode::Unknown,
    }
}
