//! Creates a tensor with a million dimensions.

use frostline_hostile::frostline_guest::{Tensor, TensorType};

frostline_hostile::extracts!("many_dimensions", |samples, _| {
    drop(Tensor::new(&vec![1; 1_000_000], TensorType::U8, &[0]));
    Ok(frostline_hostile::answer(&samples))
});
