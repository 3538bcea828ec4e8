//! Computes through plain `wasi:nn` and nothing else, so that any host side of it can run this guest, and reports what it
//! met: the tensor of a run that works, and the error codes of runs that cannot.
//!
//! The first two samples get the rows of the working run, on a batch the guest makes itself. Every further sample stands
//! for one attempt in [`attempts`]; it fails with the code and text that attempt met.

use frostline_guest::bindings::wasi::nn::errors::Error;
use frostline_guest::bindings::wasi::nn::graph::{self, load_by_name};
use frostline_guest::{
    Activation, Activations, Description, ErrorCode, FailedSample, Failure, FrozenPrefix, Job, ModelView,
    Pixels, Sample, ServedCut, Tensor, TensorType,
};

/// Rows of the batch that works.
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

/// What cannot work: a stage that is not there, an input under another name, of another shape, of another type, and none.
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

/// Four-byte elements between 0 and 1, the same on every host.
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
