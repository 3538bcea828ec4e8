//! Hostile models and images as bytes, for the tests of parsers and the isolation tests. Misbehaving guests
//! are in `guest/hostile`.

mod bodies;
mod bombs;
mod files;
mod foreign;
mod images;
mod parts;

pub use images::{hidden_frame, many_scans};

/// Model that hosts must refuse.
#[derive(Debug, Clone)]
pub struct HostileModel {
    /// Unique name in kebab case.
    pub name: &'static str,
    /// The ONNX file.
    pub file: Vec<u8>,
    /// Fragments of the expected error message.
    pub expected_fragments: &'static [&'static str],
}

/// Returns all hostile models. Some are megabytes in size.
pub fn models() -> Vec<HostileModel> {
    [bodies::all(), bombs::all(), files::all(), foreign::all()].concat()
}
