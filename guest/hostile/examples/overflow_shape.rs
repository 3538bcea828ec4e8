//! Creates a tensor with a number of elements that overflows 64 bits.

use frostline_hostile::frostline_guest::{Tensor, TensorType};

frostline_hostile::extracts!("overflow_shape", |samples, _| {
    drop(Tensor::new(
        &[u32::MAX, u32::MAX, u32::MAX],
        TensorType::Fp64,
        &[],
    ));
    Ok(frostline_hostile::answer(&samples))
});
