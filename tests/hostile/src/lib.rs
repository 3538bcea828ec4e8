//! Models and images that a stranger might send to harm a host, as bytes: for the tests of what reads them, and for the isolation
//! suite. Guests that misbehave are in `guest/hostile`.

mod bodies;
mod bombs;
mod files;
mod foreign;
mod images;
mod parts;

pub use images::hidden_frame;

/// A model no host takes.
#[derive(Debug, Clone)]
pub struct HostileModel {
    /// What it does, in words with hyphens.
    pub name: &'static str,
    /// The ONNX file.
    pub file: Vec<u8>,
    /// What the refusal has to name.
    pub named: &'static [&'static str],
}

/// All of them; some take megabytes.
pub fn models() -> Vec<HostileModel> {
    [bodies::all(), bombs::all(), files::all(), foreign::all()].concat()
}
