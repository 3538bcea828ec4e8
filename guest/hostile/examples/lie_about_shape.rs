//! Creates a tensor of a million elements from four bytes.

use frostline_hostile::{NnTensor, TensorType};

frostline_hostile::extracts!("lie_about_shape", |job| {
    drop(NnTensor::new(&[1_000, 1_000], TensorType::Fp32, &[0; 4]));
    frostline_hostile::answer(&job)
});
