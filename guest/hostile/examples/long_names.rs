//! Describes a name of a megabyte with control characters.

frostline_hostile::behaves!(
    |model, _, description| {
        frostline_hostile::describe(&"\u{1b}[31mlong\n".repeat(1 << 17), &model, description)
    },
    |job| frostline_hostile::answer(&job)
);
