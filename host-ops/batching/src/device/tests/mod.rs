//! Tests of the device scheduler.

mod fairness;
mod long;
mod memory;
mod properties;
mod runs;
mod world;
