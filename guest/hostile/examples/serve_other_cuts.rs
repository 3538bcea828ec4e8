//! Describes an unknown cut with a name of one megabyte.

use frostline_hostile::frostline_guest::{Activation, ServedCut};

frostline_hostile::behaves!(
    |model, _| {
        let mut description = frostline_hostile::describe("serve_other_cuts", model)?;
        description.cuts.push(ServedCut {
            name: "x".repeat(1 << 20),
            activation: Activation::Faithful,
        });
        Ok(description)
    },
    |samples, _| Ok(frostline_hostile::answer(&samples))
);
