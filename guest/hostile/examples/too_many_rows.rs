//! Returns a row more than requested.

frostline_hostile::extracts!("too_many_rows", |job| {
    frostline_hostile::zeros(&job, job.samples.len() + 1, 4)
});
