//! Tests of the device scheduler.

mod fairness;
mod memory;
mod properties;
mod runs;
mod world;
