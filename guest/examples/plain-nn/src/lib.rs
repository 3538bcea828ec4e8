//! Example: computes through plain `wasi:nn`, on objects that are tensors already.
//!
//! An object holds one input of the network: `f32`, little-endian, in the order of its shape. Nothing here is about images, so
//! any network will do.

use frostline_guest::bindings::wasi::nn::graph::load_by_name;
use frostline_guest::{
    Activation, Activations, Description, ErrorCode, FailedSample, Failure, FrozenPrefix, Job, ModelView,
    Pixels, Sample, ServedCut, Tensor, TensorType, objects,
};

struct PlainNn;

impl FrozenPrefix for PlainNn {
    fn describe(model: ModelView, _: String) -> Result<Description, Failure> {
        sample_bytes(&model.input_shape)?;
        let cuts = model.cuts.into_iter();
        Ok(Description {
            name: "plain-nn".to_owned(),
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

    fn extract(samples: Vec<Sample>, job: Job) -> Result<Activations, Failure> {
        let length = sample_bytes(&job.input_shape)?;
        let (mut values, mut failed, mut rows) = (Vec::new(), Vec::new(), 0);
        for (index, sample) in (0..).zip(&samples) {
            match read(&sample.key, length) {
                Ok(bytes) => {
                    values.extend(bytes);
                    rows += 1;
                }
                Err(Failure { code, message }) => failed.push(FailedSample { index, code, message }),
            }
        }
        let shape: Vec<u32> = std::iter::once(rows).chain(job.input_shape).collect();
        let batch = Tensor::new(&shape, TensorType::Fp32, &values);
        // The name says which layers; the batch goes in under the name of the tensor they begin with.
        let graph = load_by_name(&job.stage)?;
        let context = graph.init_execution_context()?;
        let outputs = context.compute(vec![(job.input, batch)])?;
        let output = outputs.into_iter().find(|(name, _)| *name == job.split);
        let Some((_, tensor)) = output else {
            return Err(Failure::new(
                ErrorCode::RuntimeError,
                "the graph returned no tensor of the split",
            ));
        };
        Ok(Activations { tensor, failed })
    }
}

/// The bytes of an object that must be `length` long.
fn read(key: &str, length: u32) -> Result<Vec<u8>, Failure> {
    let size = objects::size(key)?;
    if size != u64::from(length) {
        return Err(Failure::new(
            ErrorCode::InvalidEncoding,
            format!("it has {size} bytes, one input of the network {length}"),
        ));
    }
    objects::read(key, 0, length)
}

/// Bytes of one input.
fn sample_bytes(shape: &[u32]) -> Result<u32, Failure> {
    let bytes = shape.iter().try_fold(4_u32, |bytes, &dim| bytes.checked_mul(dim));
    bytes.ok_or_else(|| {
        Failure::new(
            ErrorCode::TooLarge,
            "one input of the network is larger than a guest's memory",
        )
    })
}

frostline_guest::export!(PlainNn);
