//! Passes bytes to a network with `float32` input.

use frostline_hostile::frostline_guest::{ElementType, Tensor};

frostline_hostile::extracts!("wrong_input_type", |job| {
    let shape: Vec<u32> = std::iter::once(1).chain(job.inputs[0].shape.clone()).collect();
    job.run(vec![Tensor::zeros(ElementType::Uint8, &shape)?], Vec::new())
});
