use frostline_wire::{CutProfile, Encoded, Platform, Profile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Measured training cost on this machine. All values are wall-clock seconds, assuming that the machine is
/// otherwise idle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainerProfile {
    /// Platform of the measurements. The engine is counted as a single lane.
    pub platform: Platform,
    /// Seconds to decode and preprocess an object on a single thread, excluding normalization.
    pub decode_seconds_per_sample: f64,
    /// Seconds to normalize the pixels of a sample on a single thread.
    pub normalize_seconds_per_sample: f64,
    /// Encoding and decoding of the pixels by encoding name.
    pub input: BTreeMap<String, Encoded>,
    /// Requested cuts in order of execution. `compute` starts at the network's input and uses this trainer's
    /// engine.
    pub cuts: Vec<CutProfile>,
    /// Seconds for a training step of the layers after the freeze cut: forward pass, backward pass and
    /// update.
    pub step_seconds: f64,
    /// Samples in this step.
    pub batch: usize,
    /// Duration of the measurement in seconds.
    pub measured_in_seconds: f64,
    /// Unix time of the measurement in seconds.
    pub measured_at: u64,
}

impl TrainerProfile {
    /// Returns a profile for a host that was not measured, assuming that it is like this machine. The
    /// replanner corrects this while the job runs.
    pub fn as_host(&self) -> Profile {
        Profile {
            platform: self.platform.clone(),
            read_seconds_per_sample: 0.0,
            reads_at_once: 1,
            read_busy_seconds_per_sample: 0.0,
            decode_seconds_per_sample: self.decode_seconds_per_sample,
            input: self.input.clone(),
            cuts: self.cuts.clone(),
            measured_in_seconds: 0.0,
            measured_at: self.measured_at,
            disturbed: false,
        }
    }
}
