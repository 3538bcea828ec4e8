//! Returns four megabytes per sample, as announced in the description.

use frostline_hostile::frostline_guest::Activation;

/// Elements per row (four megabytes).
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
