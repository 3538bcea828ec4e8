//! Loops in `extract` without end and without calling the host.

frostline_hostile::extracts!("spin", |job| {
    let mut turns = job.samples.len() as u64;
    while std::hint::black_box(turns) != u64::MAX {
        turns = turns.wrapping_add(2) & !1;
    }
    frostline_hostile::answer(&job)
});
