//! Returns rows of a width that no cut has.

frostline_hostile::extracts!("wrong_width", |samples, _| Ok(frostline_hostile::zeros(
    samples.len(),
    5
)));
