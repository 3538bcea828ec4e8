//! Creates a tensor with a million dimensions.

use frostline_hostile::{NnTensor, TensorType};

frostline_hostile::extracts!("many_dimensions", |job| {
    drop(NnTensor::new(&vec![1; 1_000_000], TensorType::U8, &[0]));
    frostline_hostile::answer(&job)
});
