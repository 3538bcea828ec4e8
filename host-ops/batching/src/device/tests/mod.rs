//! What the device promises.

mod fairness;
mod memory;
mod properties;
mod runs;
mod world;
