//! Computes through plain `wasi:nn` only, so that any implementation of it can run this guest. Reports the
//! tensor of a successful computation and the error codes of invalid ones.
//!
//! The guest creates the batch of the successful computation. Its two rows are returned for the first two
//! samples. Each further sample represents one of the [`attempts`]. It fails with the error of the attempt.

use frostline_guest::bindings::wasi::nn::errors::Error as NnError;
use frostline_guest::bindings::wasi::nn::graph::{self, load_by_name};
use frostline_guest::bindings::wasi::nn::tensor::{Tensor as NnTensor, TensorType};
use frostline_guest::{
    Description, Error, ErrorCode, Extracted, FailedSample, FrozenPrefix, Job, Model, Tensor,
};

/// Rows of the batch in the successful computation.
const ROWS: u32 = 2;

struct Conformance;

impl FrozenPrefix for Conformance {
    fn describe(model: Model, _: String, description: &Description) -> Result<(), Error> {
        description.set_name("conformance", env!("CARGO_PKG_VERSION"));
        description.serve_all(&model)
    }

    fn extract(job: Job) -> Result<Extracted, Error> {
        let input = &job.inputs[0];
        let tensor = compute(&job.graph, &input.name, batch(&input.shape, TensorType::Fp32))?;
        let failed = (ROWS..).zip(attempts(&job)).map(|(index, met)| FailedSample {
            index,
            error: match met {
                Ok(_) => Error::new(ErrorCode::Unsupported, "it worked"),
                Err(error) => error,
            },
        });
        Ok(Extracted {
            failed: failed.collect(),
            tensors: vec![(job.cut.clone(), Tensor::from_nn(tensor))],
        })
    }
}

/// Runs computations with an unknown stage, an unknown input name, a wrong shape, a wrong type and a missing
/// input.
fn attempts(job: &Job) -> [Result<NnTensor, Error>; 5] {
    let input = &job.inputs[0];
    let wide: Vec<u32> = input.shape.iter().map(|dim| dim + 1).collect();
    [
        compute(
            "no such stage",
            &input.name,
            batch(&input.shape, TensorType::Fp32),
        ),
        compute(&job.graph, "no such input", batch(&input.shape, TensorType::Fp32)),
        compute(&job.graph, &input.name, batch(&wide, TensorType::Fp32)),
        compute(&job.graph, &input.name, batch(&input.shape, TensorType::I32)),
        context(&job.graph).and_then(|context| first(context.compute(Vec::new()))),
    ]
}

fn compute(stage: &str, input: &str, batch: NnTensor) -> Result<NnTensor, Error> {
    first(context(stage)?.compute(vec![(input.to_owned(), batch)]))
}

fn context(stage: &str) -> Result<graph::GraphExecutionContext, Error> {
    Ok(load_by_name(stage)?.init_execution_context()?)
}

fn first(outputs: Result<Vec<(String, NnTensor)>, NnError>) -> Result<NnTensor, Error> {
    let tensor = outputs?.into_iter().next().map(|(_, tensor)| tensor);
    tensor.ok_or_else(|| Error::new(ErrorCode::Failed, "no outputs"))
}

/// Returns a batch of four-byte elements between 0 and 1 that does not depend on the host.
fn batch(row: &[u32], ty: TensorType) -> NnTensor {
    let dimensions: Vec<u32> = std::iter::once(ROWS).chain(row.iter().copied()).collect();
    let elements: u32 = dimensions.iter().product();
    let values = (0..elements).map(|i| f32::from((i % 251) as u8) / 251.0);
    NnTensor::new(
        &dimensions,
        ty,
        &values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>(),
    )
}

frostline_guest::export!(Conformance);
