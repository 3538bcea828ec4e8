//! Reads an object in `describe`.

use frostline_hostile::frostline_guest::objects;

frostline_hostile::behaves!(
    |model, _, description| {
        objects::read(&frostline_hostile::object("secret"), 0, 1)?;
        frostline_hostile::describe("read_in_describe", &model, description)
    },
    |job| frostline_hostile::answer(&job)
);
