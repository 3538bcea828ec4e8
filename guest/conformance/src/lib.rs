//! Computes through plain `wasi:nn` only, so that any implementation of it can run this guest. Reports the
//! tensor of a successful computation and the error codes of invalid ones.
//!
//! The guest creates the batch of the successful computation. Its two rows are returned for the first two
//! samples. Each further sample represents one of the [`attempts`]. It fails with the error of the attempt.

use frostline_guest::bindings::wasi::nn::errors::Error;
use frostline_guest::bindings::wasi::nn::graph::{self, load_by_name};
use frostline_guest::{
    Activation, Activations, Description, ErrorCode, FailedSample, Failure, FrozenPrefix, Job, ModelView,
    Pixels, Sample, ServedCut, Tensor, TensorType,
};

/// Rows of the batch in the successful computation.
const ROWS: u32 = 2;

struct Conformance;

impl FrozenPrefix for Conformance {
    fn describe(model: ModelView, _: String) -> Result<Description, Failure> {
        let cuts = model.cuts.into_iter();
        Ok(Description {
            name: "conformance".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pixels: Pixels::Own,
            cuts: cuts
                .map(|cut| ServedCut {
                    name: cut.name,
                    activation: Activation::Faithful,
                })
                .collect(),
        })
    }

    fn extract(_: Vec<Sample>, job: Job) -> Result<Activations, Failure> {
        let tensor = compute(&job.stage, &job.input, batch(&job.input_shape, TensorType::Fp32))?;
        let failed = (ROWS..).zip(attempts(&job)).map(|(index, met)| match met {
            Ok(_) => FailedSample {
                index,
                code: ErrorCode::Unknown,
                message: "it worked".to_owned(),
            },
            Err(Failure { code, message }) => FailedSample { index, code, message },
        });
        Ok(Activations {
            failed: failed.collect(),
            tensor,
        })
    }
}

/// Runs computations with an unknown stage, an unknown input name, a wrong shape, a wrong type and a missing
/// input.
fn attempts(job: &Job) -> [Result<Tensor, Failure>; 5] {
    let wide: Vec<u32> = job.input_shape.iter().map(|dim| dim + 1).collect();
    [
        compute(
            "no such stage",
            &job.input,
            batch(&job.input_shape, TensorType::Fp32),
        ),
        compute(
            &job.stage,
            "no such input",
            batch(&job.input_shape, TensorType::Fp32),
        ),
        compute(&job.stage, &job.input, batch(&wide, TensorType::Fp32)),
        compute(&job.stage, &job.input, batch(&job.input_shape, TensorType::I32)),
        context(&job.stage).and_then(|context| first(context.compute(Vec::new()))),
    ]
}

fn compute(stage: &str, input: &str, batch: Tensor) -> Result<Tensor, Failure> {
    first(context(stage)?.compute(vec![(input.to_owned(), batch)]))
}

fn context(stage: &str) -> Result<graph::GraphExecutionContext, Failure> {
    Ok(load_by_name(stage)?.init_execution_context()?)
}

fn first(outputs: Result<Vec<(String, Tensor)>, Error>) -> Result<Tensor, Failure> {
    let tensor = outputs?.into_iter().next().map(|(_, tensor)| tensor);
    tensor.ok_or_else(|| Failure::new(ErrorCode::Unknown, "no outputs"))
}

/// Returns a batch of four-byte elements between 0 and 1 that does not depend on the host.
fn batch(row: &[u32], ty: TensorType) -> Tensor {
    let dimensions: Vec<u32> = std::iter::once(ROWS).chain(row.iter().copied()).collect();
    let elements: u32 = dimensions.iter().product();
    let values = (0..elements).map(|i| f32::from((i % 251) as u8) / 251.0);
    Tensor::new(
        &dimensions,
        ty,
        &values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>(),
    )
}

frostline_guest::export!(Conformance);
