//! Returns only NaN activations.

use frostline_hostile::frostline_guest::{ElementType, Tensor};

frostline_hostile::extracts!("no_numbers", |job| {
    let rows = job.samples.len();
    let bytes: Vec<u8> = f32::NAN.to_le_bytes().repeat(rows * 4);
    let tensor = Tensor::from_bytes(ElementType::Float32, &[rows as u32, 4], &bytes)?;
    Ok(Extracted {
        tensors: vec![(job.cut, tensor)],
        failed: Vec::new(),
    })
});
