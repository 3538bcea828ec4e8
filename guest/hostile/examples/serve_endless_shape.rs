//! Describes activations with four billion elements in each of four dimensions.

use frostline_hostile::frostline_guest::Activation;

frostline_hostile::behaves!(
    |model, _| {
        let mut description = frostline_hostile::describe("serve_endless_shape", model)?;
        for cut in &mut description.cuts {
            cut.activation = Activation::Own(vec![u32::MAX; 4]);
        }
        Ok(description)
    },
    |samples, _| Ok(frostline_hostile::answer(&samples))
);
