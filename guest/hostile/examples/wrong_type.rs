//! Returns bytes instead of `f32`.

use frostline_hostile::frostline_guest::{Tensor, TensorType};

frostline_hostile::extracts!("wrong_type", |samples, _| {
    let rows = samples.len() as u32;
    let tensor = Tensor::new(&[rows, 4], TensorType::U8, &vec![1; samples.len() * 4]);
    Ok(Activations {
        tensor,
        failed: Vec::new(),
    })
});
