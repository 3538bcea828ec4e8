//! What this host computes with, and what models take on it.

use frostline_engine::Lanes;
use frostline_images::DecodePool;
use frostline_profile::ProfileFolder;
use frostline_wire::{MemoryLoad, Platform};
use std::sync::Arc;

/// See the module.
pub(crate) struct Machine {
    /// As profiles name it.
    pub(crate) name: String,
    /// Name and version of the engine's library.
    pub(crate) library: String,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) decoders: DecodePool,
    /// Of one run, at most.
    pub(crate) rows: usize,
    /// Profiles that were measured here.
    pub(crate) profiles: ProfileFolder,
}

impl Machine {
    /// What lanes may hold of a GPU's memory, and have reserved; `None` where they do not run on one that tells.
    pub(crate) fn device_memory(&self) -> Option<MemoryLoad> {
        let lanes = self.lanes.stats();
        lanes.device_budget.map(|budget| MemoryLoad {
            budget,
            held: lanes.memory_reserved,
        })
    }

    /// What profiles measured on this host depend on.
    pub(crate) fn platform(&self) -> Platform {
        let lanes = self.lanes.config();
        Platform {
            machine: self.name.clone(),
            device: lanes.device.to_string(),
            library: self.library.clone(),
            lanes: self.lanes.lanes(),
            threads_per_lane: lanes.threads_per_lane,
            decode_threads: self.decoders.threads(),
            rows: self.rows,
        }
    }
}
