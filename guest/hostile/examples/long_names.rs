//! Returns a name of a megabyte with control characters.

frostline_hostile::behaves!(
    |model, _| frostline_hostile::describe(&"\u{1b}[31mlong\n".repeat(1 << 17), model),
    |samples, _| Ok(frostline_hostile::answer(&samples))
);
