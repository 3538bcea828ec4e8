//! ONNX Runtime behind lanes; the one address of `ort`.
//!
//! - [`library_version`]: the shared library, found once per process
//! - [`Device`]: where sessions run; an absent one is an error, never a silent CPU run
//! - [`Session`]: one network, run on owned tensors; [`Session::step`] trains on a [`ResidentState`]
//! - [`Lanes`]: threads that own sessions and run stages of models for many callers at once, bounded
//! - [`LanesPlace`], [`enter_lane`]: the same in child processes, which a network may crash alone
//! - [`free_device_memory`]: what a GPU's driver says that there is
//! - [`exact_int8`]: whether int8 with weights of eight bits is exact on this processor
//! - [`Interrupt`]: ends an operation of a session from another thread

mod binding;
mod device;
mod error;
mod gauge;
mod interrupt;
mod lanes;
mod library;
mod normalizer;
mod prepared;
mod processor;
mod resident;
mod session;
mod slot;
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
pub use processor::exact_int8;
pub use resident::{ResidentSlot, ResidentState};
pub use session::{Session, SessionOptions};
pub use slot::TensorSlot;
