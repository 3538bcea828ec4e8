//! Returns four megabytes per sample, as announced in the description.

use frostline_hostile::frostline_guest::{ElementType, TensorInfo};

/// Elements per row (four megabytes).
const WIDTH: u32 = 1 << 20;

frostline_hostile::behaves!(
    |model, _, description| {
        description.set_name("return_too_much", "0");
        for cut in &model.cuts {
            let wide = TensorInfo {
                name: cut.name.clone(),
                element_type: ElementType::Float32,
                shape: vec![WIDTH],
            };
            description.serve_custom(&cut.name, &[wide])?;
        }
        Ok(())
    },
    |job| frostline_hostile::zeros(&job, job.samples.len(), WIDTH)
);
