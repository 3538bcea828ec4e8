//! Requests the size of an object a million times.

use frostline_hostile::frostline_guest::objects;

frostline_hostile::extracts!("ask_sizes", |job| {
    for _ in 0..1_000_000 {
        objects::size(&job.samples[0])?;
    }
    frostline_hostile::answer(&job)
});
