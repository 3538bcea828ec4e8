//! Guests as the tests find them.

/// The stock guest.
pub(crate) fn stock() -> Vec<u8> {
    std::fs::read(frostline_needs::stock_guest()).unwrap()
}

/// A guest built from source. Only tests in a module `needs_guests` may ask for it.
pub(crate) fn built(name: &str) -> Vec<u8> {
    std::fs::read(frostline_needs::built_guest(name)).unwrap()
}
