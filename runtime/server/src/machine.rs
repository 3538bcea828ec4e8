//! The lanes, decoders and stored profiles of this host.

use frostline_engine::Lanes;
use frostline_images::DecodePool;
use frostline_profile::ProfileFolder;
use frostline_wire::{MemoryLoad, Platform};
use std::sync::Arc;

/// Compute resources of the host.
pub(crate) struct Machine {
    /// Processor or GPU, as named in profiles.
    pub(crate) name: String,
    /// Name and version of the engine's library.
    pub(crate) library: String,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) decoders: DecodePool,
    /// Rows in the largest engine batch of a profile measurement.
    pub(crate) profile_rows: usize,
    /// Profiles measured on this host.
    pub(crate) profiles: ProfileFolder,
}

impl Machine {
    /// Returns the GPU memory budget of the lanes and the bytes reserved from it, or `None` without a GPU or
    /// a limit.
    pub(crate) fn device_memory(&self) -> Option<MemoryLoad> {
        let lanes = self.lanes.stats();
        lanes.device_budget.map(|budget| MemoryLoad {
            budget,
            held: lanes.memory_reserved,
        })
    }

    /// Describes the platform for which profiles measured on this host are valid.
    pub(crate) fn platform(&self) -> Platform {
        let lanes = self.lanes.config();
        Platform {
            machine: self.name.clone(),
            device: lanes.device.to_string(),
            library: self.library.clone(),
            lanes: self.lanes.lanes(),
            threads_per_lane: lanes.threads_per_lane,
            decode_threads: self.decoders.threads(),
            rows: self.profile_rows,
        }
    }
}
