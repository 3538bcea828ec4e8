//! Creates tensors on the host and never drops the handles.

frostline_hostile::extracts!("leak", |job| loop {
    std::mem::forget(frostline_hostile::zeros(&job, job.samples.len(), 1 << 16));
});
