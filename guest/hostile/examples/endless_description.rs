//! Describes the same cut a million times, with tensors of different names.

use frostline_hostile::frostline_guest::{ElementType, TensorInfo};

frostline_hostile::behaves!(
    |model, _, description| {
        for number in 0..1_000_000_u32 {
            let tensor = TensorInfo {
                name: format!("{number}").repeat(100),
                element_type: ElementType::Float32,
                shape: vec![4],
            };
            description.serve_custom(&model.cuts[0].name, &[tensor])?;
        }
        Ok(())
    },
    |job| frostline_hostile::answer(&job)
);
