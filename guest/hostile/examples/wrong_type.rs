//! Returns bytes instead of `float32`.

use frostline_hostile::frostline_guest::{ElementType, Tensor};

frostline_hostile::extracts!("wrong_type", |job| {
    let tensor = Tensor::zeros(ElementType::Uint8, &[job.samples.len() as u32, 4])?;
    Ok(Extracted {
        tensors: vec![(job.cut, tensor)],
        failed: Vec::new(),
    })
});
