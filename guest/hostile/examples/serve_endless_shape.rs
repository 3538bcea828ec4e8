//! Describes activations with four billion elements in each of four dimensions.

use frostline_hostile::frostline_guest::{ElementType, TensorInfo};

frostline_hostile::behaves!(
    |model, _, description| {
        let endless = TensorInfo {
            name: "endless".to_owned(),
            element_type: ElementType::Float32,
            shape: vec![u32::MAX; 4],
        };
        description.serve_custom(&model.cuts[0].name, &[endless])
    },
    |job| frostline_hostile::answer(&job)
);
