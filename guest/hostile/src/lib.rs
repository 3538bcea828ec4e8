//! What the misbehaving guests in `examples/` share: an honest beginning.

use frostline_guest::{
    Activation, Activations, Description, Failure, ModelView, Pixels, Sample, ServedCut, Tensor, TensorType,
};

/// An honest description: every cut, faithfully, on pixels of the guest's own.
pub fn describe(name: &str, model: ModelView) -> Result<Description, Failure> {
    let cuts = model.cuts.into_iter();
    Ok(Description {
        name: name.to_owned(),
        version: "0".to_owned(),
        pixels: Pixels::Own,
        cuts: cuts
            .map(|cut| ServedCut {
                name: cut.name,
                activation: Activation::Faithful,
            })
            .collect(),
    })
}

/// Activations of `rows` rows of `width` zeros, and no failed sample.
pub fn zeros(rows: usize, width: u32) -> Activations {
    let bytes = vec![0; rows * width as usize * 4];
    let tensor = Tensor::new(&[rows as u32, width], TensorType::Fp32, &bytes);
    Activations {
        tensor,
        failed: Vec::new(),
    }
}

/// The key of the first sample; tests pass what a guest needs to know in it.
pub fn first_key(samples: &[Sample]) -> String {
    samples
        .first()
        .map(|sample| sample.key.clone())
        .unwrap_or_default()
}
