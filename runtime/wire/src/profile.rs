//! Measured cost of a network on a machine.

use crate::{RequestedSample, UploadRef, bounded};
use frostline_tensor::{Precision, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Request to measure a model on the lanes of a host: `POST /v1/profiles`. The host returns a stored profile
/// if it is still valid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileRequest {
    /// Data root of the samples.
    #[serde(deserialize_with = "bounded::root")]
    pub root: String,
    /// Reference to the guest, which defines the preprocessing.
    pub guest: UploadRef,
    /// Reference to the model.
    pub model: UploadRef,
    /// Text of up to 64 KiB passed to the guest without changes.
    #[serde(default, deserialize_with = "bounded::parameters")]
    pub parameters: String,
    /// Cuts to measure, in execution order.
    #[serde(deserialize_with = "bounded::cuts")]
    pub cuts: Vec<String>,
    /// Real samples for measuring sizes and decoding. A small number is sufficient.
    pub samples: Vec<RequestedSample>,
    /// Augmentation of pixels in the job. It counts as decoding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<View>,
    /// Required precision of GPU computations.
    #[serde(default, skip_serializing_if = "Precision::is_full")]
    pub precision: Precision,
    /// Maximum wait in seconds before the measurement starts. The default is the time limit of extractions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_seconds: Option<u64>,
}

/// Cost of a network on a machine. All durations are wall times on an idle machine, unless `disturbed` is
/// set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Profile {
    /// Platform for which the measurements are valid.
    pub platform: Platform,
    /// Seconds to read an object from the store, without concurrency.
    pub read_seconds_per_sample: f64,
    /// Number of concurrent reads per call.
    pub reads_at_once: usize,
    /// Compute time lost per object during `reads_at_once` concurrent reads. Measured in seconds of the whole
    /// machine.
    #[serde(default)]
    pub read_busy_seconds_per_sample: f64,
    /// Seconds to decode and preprocess an object on one thread.
    pub decode_seconds_per_sample: f64,
    /// Encoded pixels by name of the encoding.
    pub input: BTreeMap<String, Encoded>,
    /// Requested cuts in execution order.
    pub cuts: Vec<CutProfile>,
    /// Duration of the measurement in seconds.
    pub measured_in_seconds: f64,
    /// Measurement time in seconds since 1970.
    pub measured_at: u64,
    /// True if other work ran during the measurement, so costs are overestimated. Hosts do not store such
    /// profiles.
    pub disturbed: bool,
}

/// Properties that determine measurements. Profiles of different platforms are not comparable.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Platform {
    /// Processor with number of cores, or accelerator.
    pub machine: String,
    /// `cpu` or `cuda:<n>`.
    pub device: String,
    /// Name and version of the engine library.
    pub library: String,
    /// Number of concurrent lanes.
    pub lanes: usize,
    /// Threads per lane.
    pub threads_per_lane: usize,
    /// Number of decoding threads.
    pub decode_threads: usize,
    /// Number of samples in the largest measured engine batch. Larger batches are split.
    pub rows: usize,
}

/// Measurements for a cut.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CutProfile {
    /// Tensor name of the cut.
    pub name: String,
    /// Seconds from the network input to the cut, on one lane while others are idle.
    pub compute: Linear,
    /// Seconds per sample from the network input to the cut while all lanes are busy. This is the inverse of
    /// the machine's throughput.
    pub busy_seconds_per_sample: f64,
    /// Bytes per sample in f32.
    pub bytes_per_sample: u64,
    /// Encoded activations by name of the encoding.
    pub encoded: BTreeMap<String, Encoded>,
    /// Engine memory in bytes up to this cut. `fixed` contains weights and workspace, and `per_sample`
    /// contains live activations.
    pub memory: Linear,
}

/// Linear function of the batch size: `fixed + per_sample * samples`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Linear {
    /// Constant part.
    pub fixed: f64,
    /// Increase per sample.
    pub per_sample: f64,
}

impl Linear {
    /// Returns the value for `samples` samples.
    pub fn at(&self, samples: f64) -> f64 {
        self.per_sample.mul_add(samples, self.fixed)
    }
}

/// Measurements for an encoding.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Encoded {
    /// Bytes per sample in the response body.
    pub bytes_per_sample: f64,
    /// Seconds per sample to encode on one thread.
    pub encode_seconds_per_sample: f64,
    /// Seconds per sample to decode on one thread.
    pub decode_seconds_per_sample: f64,
}
