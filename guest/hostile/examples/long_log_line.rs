//! Logs a line of sixteen megabytes.

frostline_hostile::extracts!("long_log_line", |job| {
    use frostline_hostile::frostline_guest::log::{Level, write};
    write(Level::Error, &"\u{7}forged\n".repeat(2 << 20));
    frostline_hostile::answer(&job)
});
