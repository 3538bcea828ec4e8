//! Example: computes through plain `wasi:nn` on objects that contain tensors.
//!
//! An object is an input of the network in little-endian `f32` values. Nothing is specific to images, so any
//! network can be used.

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
        // The stage name selects the layers. The batch must have the name of the first layer's input.
        let graph = load_by_name(&job.stage)?;
        let context = graph.init_execution_context()?;
        let outputs = context.compute(vec![(job.input, batch)])?;
        let output = outputs.into_iter().find(|(name, _)| *name == job.split);
        let Some((_, tensor)) = output else {
            return Err(Failure::new(
                ErrorCode::RuntimeError,
                "the graph did not return the tensor of the split",
            ));
        };
        Ok(Activations { tensor, failed })
    }
}

/// Reads an object, which must have `length` bytes.
fn read(key: &str, length: u32) -> Result<Vec<u8>, Failure> {
    let size = objects::size(key)?;
    if size != u64::from(length) {
        return Err(Failure::new(
            ErrorCode::InvalidEncoding,
            format!("the object has {size} bytes, but an input of the network has {length}"),
        ));
    }
    objects::read(key, 0, length)
}

/// Returns the number of bytes of an input.
fn sample_bytes(shape: &[u32]) -> Result<u32, Failure> {
    let bytes = shape.iter().try_fold(4_u32, |bytes, &dim| bytes.checked_mul(dim));
    bytes.ok_or_else(|| {
        Failure::new(
            ErrorCode::TooLarge,
            "an input of the network exceeds the guest's memory",
        )
    })
}

frostline_guest::export!(PlainNn);
