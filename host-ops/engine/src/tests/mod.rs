//! Tests against the real library, on tiny networks built here.

mod binding;
mod crashes;
mod lane_process;
mod lanes;
#[cfg(target_os = "linux")]
mod memory;
mod networks;
mod resident;
mod session;
mod setup;

mod squeezenet;
