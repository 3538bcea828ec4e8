//! Creates empty tensors on the host and never drops the handles.

frostline_hostile::extracts!("leak_small", |job| loop {
    std::mem::forget(frostline_hostile::zeros(&job, 0, 1));
});
