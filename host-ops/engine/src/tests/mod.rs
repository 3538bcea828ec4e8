//! Tests against the real library, on tiny networks built here.

mod binding;
mod budget;
mod crashes;
mod half;
pub(crate) mod lane_process;
mod lanes;
#[cfg(target_os = "linux")]
mod memory;
pub(crate) mod networks;
mod poison;
mod resident;
mod session;
mod setup;

mod squeezenet;
#[cfg(target_os = "linux")]
mod surroundings;
