//! Describes an unknown cut with a name of one megabyte.

frostline_hostile::behaves!(
    |model, _, description| {
        frostline_hostile::describe("serve_other_cuts", &model, description)?;
        description.serve(&"x".repeat(1 << 20))
    },
    |job| frostline_hostile::answer(&job)
);
