//! Hostile models and images, as bytes, for the tests of their readers and for the isolation suite. Guests that misbehave are in `guest/hostile`.

mod bodies;
mod bombs;
mod files;
mod foreign;
mod images;
mod parts;

pub use images::hidden_frame;

/// A model that every host refuses.
#[derive(Debug, Clone)]
pub struct HostileModel {
    /// Its name, with hyphens.
    pub name: &'static str,
    /// The ONNX file.
    pub file: Vec<u8>,
    /// Fragments of the refusal.
    pub named: &'static [&'static str],
}

/// All hostile models; some are megabytes large.
pub fn models() -> Vec<HostileModel> {
    [bodies::all(), bombs::all(), files::all(), foreign::all()].concat()
}
