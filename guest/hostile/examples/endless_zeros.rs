//! Creates a tensor of zeros with a terabyte of elements.

use frostline_hostile::frostline_guest::{ElementType, Tensor};

frostline_hostile::extracts!("endless_zeros", |job| {
    drop(Tensor::zeros(ElementType::Float64, &[1 << 20, 1 << 17])?);
    frostline_hostile::answer(&job)
});
