//! Reads a byte of an object a million times.

use frostline_hostile::frostline_guest::objects;

frostline_hostile::extracts!("read_again", |job| {
    for _ in 0..1_000_000 {
        objects::read(&job.samples[0], 0, 1)?;
    }
    frostline_hostile::answer(&job)
});
