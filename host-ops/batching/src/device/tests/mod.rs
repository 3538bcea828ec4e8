//! What the device promises.

mod fairness;
mod memory;
mod runs;
mod world;
