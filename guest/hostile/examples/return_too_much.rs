//! Returns megabytes for every sample, and says so in its description.

use frostline_hostile::frostline_guest::Activation;

/// Elements of one row: four megabytes.
const WIDTH: u32 = 1 << 20;

frostline_hostile::behaves!(
    |model, _| {
        let mut description = frostline_hostile::describe("return_too_much", model)?;
        for cut in &mut description.cuts {
            cut.activation = Activation::Own(vec![WIDTH]);
        }
        Ok(description)
    },
    |samples, _| Ok(frostline_hostile::zeros(samples.len(), WIDTH))
);
