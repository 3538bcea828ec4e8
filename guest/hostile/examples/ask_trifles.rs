//! Calls a cheap host function in an infinite loop.

use frostline_hostile::frostline_guest::{Tensor, TensorType};

frostline_hostile::extracts!("ask_trifles", |samples, _| {
    let tensor = Tensor::new(&[1], TensorType::U8, &[0]);
    let mut dimensions = 1;
    while std::hint::black_box(dimensions) != 0 {
        dimensions = tensor.dimensions().len();
    }
    Ok(frostline_hostile::answer(&samples))
});
