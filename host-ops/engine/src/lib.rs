//! ONNX Runtime behind lanes. This is the only crate that uses `ort`.
//!
//! - [`library_version`] finds and loads the shared library once per process.
//! - [`Device`] selects the CPU or a GPU. If the GPU is missing, opening a session fails; there is no silent
//!   fallback to the CPU.
//! - [`CudaOptions`] selects how a GPU computes.
//! - [`Session`] is a loaded network. [`Session::step`] trains on a [`ResidentState`].
//! - [`Lanes`] are worker threads with sessions. They run stages for concurrent callers and have a bounded
//!   queue.
//! - [`LanesPlace`] and [`enter_lane`] move lanes to child processes. A crashing network then ends only its
//!   lane's process.
//! - [`free_device_memory`] returns free GPU memory as reported by the driver.
//! - [`exact_int8`] detects whether this processor computes int8 with 8-bit weights exactly.
//! - [`Interrupt`] ends a session's operation from another thread.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests start threads"))]

mod binding;
mod capture;
mod cuda;
mod device;
mod error;
mod gauge;
mod half_weights;
mod interrupt;
mod lanes;
mod library;
mod normalizer;
mod options;
mod prepared;
mod processor;
mod replay;
mod resident;
mod session;
mod slot;
mod tensor_spec;
mod values;

#[cfg(test)]
mod tests;

pub use device::{Device, ParseDeviceError};
pub use error::EngineError;
pub use gauge::free_device_memory;
pub use interrupt::{Interrupt, InterruptCause};
pub use lanes::{
    Begun, ChildLanes, ConfinedLane, Isolation, LaneStats, Lanes, LanesConfig, LanesPlace, OnBegin,
    PreparedStages, StageSource, TenantLanes, enter_lane,
};
pub use library::{NO_TELEMETRY, library_version, user_library_folder};
pub use options::{CudaOptions, SessionOptions};
pub use processor::exact_int8;
pub use resident::{ResidentSlot, ResidentState};
pub use session::Session;
pub use slot::TensorSlot;
