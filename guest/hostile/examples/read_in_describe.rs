//! Reads an object in `describe`.

frostline_hostile::behaves!(
    |model, _| {
        frostline_hostile::frostline_guest::objects::read("secret", 0, 1)?;
        frostline_hostile::describe("read_in_describe", model)
    },
    |samples, _| Ok(frostline_hostile::answer(&samples))
);
