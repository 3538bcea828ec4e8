//! Creates a tensor with a number of elements that overflows 64 bits.

use frostline_hostile::{NnTensor, TensorType};

frostline_hostile::extracts!("overflow_shape", |job| {
    drop(NnTensor::new(
        &[u32::MAX, u32::MAX, u32::MAX],
        TensorType::Fp64,
        &[],
    ));
    frostline_hostile::answer(&job)
});
