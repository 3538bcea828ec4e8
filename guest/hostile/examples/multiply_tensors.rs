//! Doubles a tensor again and again by joining it with itself.

use frostline_hostile::frostline_guest::{ElementType, Tensor};

frostline_hostile::extracts!("multiply_tensors", |job| {
    let mut tensor = Tensor::zeros(ElementType::Float32, &[1, 1 << 10])?;
    for _ in 0..64 {
        tensor = Tensor::concat(&[&tensor, &tensor])?.cast(ElementType::Float64)?;
    }
    drop(tensor);
    frostline_hostile::answer(&job)
});
