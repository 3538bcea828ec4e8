//! Returns only NaN activations.

use frostline_hostile::frostline_guest::{Tensor, TensorType};

frostline_hostile::extracts!("no_numbers", |samples, _| {
    let bytes: Vec<u8> = f32::NAN.to_le_bytes().repeat(samples.len() * 4);
    let tensor = Tensor::new(&[samples.len() as u32, 4], TensorType::Fp32, &bytes);
    Ok(Activations {
        tensor,
        failed: Vec::new(),
    })
});
