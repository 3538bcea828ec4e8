//! Loads compiled guests.

pub(crate) fn stock() -> Vec<u8> {
    std::fs::read(frostline_needs::stock_guest()).unwrap()
}

/// Loads a guest built from source. Only available to tests in modules named `needs_guests`.
pub(crate) fn built(name: &str) -> Vec<u8> {
    std::fs::read(frostline_needs::built_guest(name)).unwrap()
}
