//! Returns a row less than requested.

frostline_hostile::extracts!("too_few_rows", |job| {
    frostline_hostile::zeros(&job, job.samples.len() - 1, 4)
});
