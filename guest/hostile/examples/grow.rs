//! Allocates memory until the limit is exceeded.

frostline_hostile::extracts!("grow", |job| {
    let mut hoard = Vec::new();
    loop {
        hoard.push(vec![job.cut.len() as u8; 1 << 20]);
        if std::hint::black_box(&hoard).len() > 1 << 20 {
            return frostline_hostile::zeros(&job, job.samples.len(), 1);
        }
    }
});
