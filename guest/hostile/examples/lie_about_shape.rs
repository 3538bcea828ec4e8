//! Creates a tensor of a million elements from four bytes.

use frostline_hostile::frostline_guest::{Tensor, TensorType};

frostline_hostile::extracts!("lie_about_shape", |samples, _| {
    drop(Tensor::new(&[1_000, 1_000], TensorType::Fp32, &[0; 4]));
    Ok(frostline_hostile::answer(&samples))
});
