//! Calls a cheap host function in an infinite loop.

use frostline_hostile::frostline_guest::{ElementType, Tensor};

frostline_hostile::extracts!("ask_trifles", |job| {
    let tensor = Tensor::zeros(ElementType::Uint8, &[1])?;
    let mut dimensions = 1;
    while std::hint::black_box(dimensions) != 0 {
        dimensions = tensor.shape().len();
    }
    frostline_hostile::answer(&job)
});
