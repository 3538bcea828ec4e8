//! Returns rows with an unexpected width.

frostline_hostile::extracts!("wrong_width", |samples, _| Ok(frostline_hostile::zeros(
    samples.len(),
    5
)));
