//! Loops in the start function without end, before the host calls an export.

/// wit-component adds a start function that calls this function when an instance is created.
#[unsafe(no_mangle)]
pub extern "C" fn _initialize() {
    let mut turns = 0u64;
    while std::hint::black_box(turns) != u64::MAX {
        turns = turns.wrapping_add(2) & !1;
    }
}

frostline_hostile::extracts!("spin_at_start", |job| frostline_hostile::answer(&job));
