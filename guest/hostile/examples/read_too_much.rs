//! Reads the first sample without end.

use frostline_hostile::frostline_guest::objects;

frostline_hostile::extracts!("read_too_much", |job| loop {
    objects::read(&job.samples[0], 0, u32::MAX)?;
});
