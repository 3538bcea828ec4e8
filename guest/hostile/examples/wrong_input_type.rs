//! Passes bytes to a network with `f32` input.

use frostline_hostile::frostline_guest::{Tensor, TensorType};

frostline_hostile::extracts!("wrong_input_type", |samples, job| {
    use frostline_hostile::frostline_guest::bindings::wasi::nn::graph::load_by_name;
    let elements: u32 = job.input_shape.iter().product();
    let dimensions: Vec<u32> = std::iter::once(1).chain(job.input_shape).collect();
    let pixels = Tensor::new(&dimensions, TensorType::U8, &vec![0; elements as usize]);
    load_by_name(&job.stage)?
        .init_execution_context()?
        .compute(vec![(job.input, pixels)])?;
    Ok(frostline_hostile::answer(&samples))
});
