//! Recurses without end.

#[inline(never)]
#[allow(unconditional_recursion, reason = "that is the point")]
fn deeper(turns: u64) -> u64 {
    let further = std::hint::black_box(turns).wrapping_add(1);
    deeper(further).wrapping_mul(3) ^ std::hint::black_box(turns)
}

frostline_hostile::extracts!("recurse", |job| {
    std::hint::black_box(deeper(job.samples.len() as u64));
    frostline_hostile::answer(&job)
});
