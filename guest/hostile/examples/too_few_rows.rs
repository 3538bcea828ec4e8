//! Returns one row less than it got samples.

frostline_hostile::extracts!("too_few_rows", |samples, _| {
    Ok(frostline_hostile::zeros(samples.len() - 1, 4))
});
