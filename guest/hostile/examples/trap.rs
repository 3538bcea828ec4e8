//! Panics in `extract`.

use frostline_hostile::frostline_guest::Job;

/// Not inlined, because the host names the functions that led to a trap.
#[inline(never)]
fn fail(job: &Job) -> ! {
    panic!("no activations for {} samples at {}", job.samples.len(), job.cut)
}

frostline_hostile::extracts!("trap", |job| fail(&job));
