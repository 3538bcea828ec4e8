//! Returns a row less than requested.

frostline_hostile::extracts!("too_few_rows", |samples, _| {
    Ok(frostline_hostile::zeros(samples.len() - 1, 4))
});
