//! What running a network takes on one machine, as measured there.

use crate::{Pin, RequestedSample};
use frostline_tensor::{Precision, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Asks a host to measure a model on its lanes: `POST /v1/profiles`. Answered from store while nothing it depends on has changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileRequest {
    /// The data root the samples are in.
    pub root: String,
    /// The guest, which says how samples become the network's input.
    pub guest: Pin,
    /// The model.
    pub model: Pin,
    /// Passed to the guest as it is.
    #[serde(default)]
    pub parameters: String,
    /// The cuts wanted, in the order of execution.
    pub cuts: Vec<String>,
    /// Real samples to measure sizes and decoding on; a handful is enough.
    pub samples: Vec<RequestedSample>,
    /// How the job's pixels are augmented, which counts as decoding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<View>,
    /// How exactly a GPU has to compute.
    #[serde(default, skip_serializing_if = "Precision::is_full")]
    pub precision: Precision,
    /// How long the measurement may wait for its turn, in seconds, before it is refused; as long as an extraction may take where this is
    /// not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_seconds: Option<u64>,
}

/// What running a network takes on one machine. All seconds are wall time while nothing else runs there, unless it is `disturbed`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// What the figures hold for.
    pub platform: Platform,
    /// Fetching an object from its store, one after the other.
    pub read_seconds_per_sample: f64,
    /// Objects that one call reads at a time.
    pub reads_at_once: usize,
    /// What reading an object takes from the computing beside it, with so many read at a time: seconds of the whole machine.
    #[serde(default)]
    pub read_busy_seconds_per_sample: f64,
    /// Decoding and preprocessing one object on one thread.
    pub decode_seconds_per_sample: f64,
    /// Decoded pixels on the wire, by encoding's name.
    pub input: BTreeMap<String, Encoded>,
    /// The cuts that were asked for, in the order of execution.
    pub cuts: Vec<CutProfile>,
    /// What measuring took.
    pub measured_in_seconds: f64,
    /// When it was measured, in seconds since 1970.
    pub measured_at: u64,
    /// Whether other work went on meanwhile, so that it shows more than it takes. Hosts do not keep such a profile.
    #[serde(default, skip_serializing_if = "crate::messages::is_false")]
    pub disturbed: bool,
}

/// What measurements depend on. A profile of another platform says nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Platform {
    /// Processor and number of cores, or the accelerator's name.
    pub machine: String,
    /// `cpu` or `cuda:<n>`.
    pub device: String,
    /// Name and version of the engine's library.
    pub library: String,
    /// Lanes that compute at once.
    pub lanes: usize,
    /// Threads of each.
    pub threads_per_lane: usize,
    /// Threads that decode.
    pub decode_threads: usize,
    /// Rows of the larger runs that were measured; larger batches are divided.
    pub rows: usize,
}

/// One cut, measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CutProfile {
    /// Its tensor's name.
    pub name: String,
    /// From the network's input to here, on one lane with the others idle.
    pub compute: Linear,
    /// The same with all lanes busy: seconds of the whole machine for one sample.
    pub busy_seconds_per_sample: f64,
    /// Bytes of one sample in f32.
    pub bytes_per_sample: u64,
    /// The activations of the samples on the wire, by encoding's name.
    pub encoded: BTreeMap<String, Encoded>,
    /// Memory the engine takes to get here: weights and workspace (fixed), activations alive at once (per sample), in bytes.
    pub memory: Linear,
}

/// A quantity that grows with the batch: `fixed + per_sample * samples`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Linear {
    /// For any batch.
    pub fixed: f64,
    /// For each sample of it.
    pub per_sample: f64,
}

impl Linear {
    /// The quantity for `samples` samples.
    pub fn at(&self, samples: f64) -> f64 {
        self.per_sample.mul_add(samples, self.fixed)
    }
}

/// Real samples in one encoding.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Encoded {
    /// Bytes of the answer's body per sample.
    pub bytes_per_sample: f64,
    /// Seconds of one thread to encode a sample.
    pub encode_seconds_per_sample: f64,
    /// Seconds of one thread to decode a sample.
    pub decode_seconds_per_sample: f64,
}
