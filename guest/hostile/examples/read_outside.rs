//! Reads objects outside of the data root under various names.

use frostline_hostile::frostline_guest::objects;

frostline_hostile::extracts!("read_outside", |job| {
    let names = [
        "../secret",
        "/etc/passwd",
        "%2e%2e/secret",
        "a/../../secret",
        "",
        "a\0b",
    ];
    let long = "x".repeat(1 << 20);
    let mut refused = Ok(Vec::new());
    for name in names.into_iter().chain([long.as_str()]) {
        refused = objects::read(&frostline_hostile::object(name), 0, 1);
        if refused.is_ok() {
            return frostline_hostile::answer(&job);
        }
    }
    refused?;
    frostline_hostile::answer(&job)
});
