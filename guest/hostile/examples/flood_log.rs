//! Writes ten thousand log lines.

frostline_hostile::extracts!("flood_log", |job| {
    use frostline_hostile::frostline_guest::log::{Level, write};
    for _ in 0..10_000 {
        write(
            Level::Info,
            "All work and no play makes Jack a dull guest.\\nfrostline: forged line",
        );
    }
    frostline_hostile::answer(&job)
});
