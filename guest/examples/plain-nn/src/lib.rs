//! Example: computes through plain `wasi:nn` on objects that contain tensors.
//!
//! An object is an input of the network in little-endian `f32` values. Nothing is specific to images, so any
//! network with one input can be used.

use frostline_guest::bindings::wasi::nn::graph::load_by_name;
use frostline_guest::bindings::wasi::nn::tensor::{Tensor as NnTensor, TensorType};
use frostline_guest::{
    Description, ElementType, Error, ErrorCode, Extracted, FailedSample, FrozenPrefix, Job, Model, Sample,
    Tensor, TensorInfo, objects,
};

struct PlainNn;

impl FrozenPrefix for PlainNn {
    fn describe(model: Model, _: String, description: &Description) -> Result<(), Error> {
        only_input(&model.inputs)?.sample_bytes()?;
        description.set_name("plain-nn", env!("CARGO_PKG_VERSION"));
        description.serve_all(&model)
    }

    fn extract(job: Job) -> Result<Extracted, Error> {
        let input = only_input(&job.inputs)?;
        let length = input.sample_bytes()?;
        let mut values = Vec::new();
        let mut failed = Vec::new();
        let mut rows = 0;
        for (index, sample) in (0..).zip(&job.samples) {
            match read(sample, length) {
                Ok(bytes) => {
                    values.extend(bytes);
                    rows += 1;
                }
                Err(error) => failed.push(FailedSample { index, error }),
            }
        }
        let shape: Vec<u32> = std::iter::once(rows).chain(input.shape.clone()).collect();
        let batch = NnTensor::new(&shape, TensorType::Fp32, &values);
        // The name of the graph selects the layers. The batch must have the name of the model's input.
        let graph = load_by_name(&job.graph)?;
        let context = graph.init_execution_context()?;
        let outputs = context.compute(vec![(input.name.clone(), batch)])?.into_iter();
        let tensors = outputs.map(|(name, tensor)| (name, Tensor::from_nn(tensor)));
        Ok(Extracted {
            tensors: tensors.collect(),
            failed,
        })
    }
}

/// Reads an object, which must have `length` bytes.
fn read(sample: &Sample, length: u32) -> Result<Vec<u8>, Error> {
    let size = objects::size(sample)?;
    if size != u64::from(length) {
        return Err(Error::new(
            ErrorCode::InvalidData,
            format!("the object has {size} bytes, but an input of the network has {length}"),
        ));
    }
    objects::read(sample, 0, length)
}

/// Returns the input of a network with one `float32` input.
fn only_input(inputs: &[TensorInfo]) -> Result<&TensorInfo, Error> {
    match inputs {
        [input] if input.element_type == ElementType::Float32 => Ok(input),
        _ => Err(Error::invalid(
            "this guest serves networks with one input of float32",
        )),
    }
}

frostline_guest::export!(PlainNn);
