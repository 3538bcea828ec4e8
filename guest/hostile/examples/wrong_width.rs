//! Returns rows with an unexpected width.

frostline_hostile::extracts!("wrong_width", |job| {
    frostline_hostile::zeros(&job, job.samples.len(), 5)
});
