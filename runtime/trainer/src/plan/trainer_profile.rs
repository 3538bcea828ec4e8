use frostline_wire::{CutProfile, Encoded, Platform, Profile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What training a network takes on this machine. All seconds are wall time while nothing else runs here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TrainerProfile {
    /// What the figures hold for: one lane, the engine.
    pub(crate) platform: Platform,
    /// Decoding and preprocessing one object on one thread, up to pixels before normalization.
    pub(crate) decode_seconds_per_sample: f64,
    /// Normalizing the pixels of one sample on one thread.
    pub(crate) normalize_seconds_per_sample: f64,
    /// Pixels on the wire, by encoding's name, encoded and decoded here.
    pub(crate) input: BTreeMap<String, Encoded>,
    /// The cuts that were asked for, in the order of execution; `compute` is the time from the network's input on this trainer's engine.
    pub(crate) cuts: Vec<CutProfile>,
    /// One training step of the layers after the freeze cut: forward, backward, update.
    pub(crate) step_seconds: f64,
    /// Samples of that step.
    pub(crate) batch: usize,
    /// What measuring took.
    pub(crate) measured_in_seconds: f64,
    /// When it was measured, in seconds since 1970.
    pub(crate) measured_at: u64,
}

impl TrainerProfile {
    /// A host that nothing was measured on, taken to be like this machine; a running job corrects what it sees.
    pub(crate) fn as_host(&self) -> Profile {
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
