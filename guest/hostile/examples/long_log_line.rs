//! Logs a line of sixteen megabytes.

frostline_hostile::extracts!("long_log_line", |samples, _| {
    use frostline_hostile::frostline_guest::log::{Level, write};
    write(Level::Error, &"\u{7}forged\n".repeat(2 << 20));
    Ok(frostline_hostile::answer(&samples))
});
