//! Conversion of measurements to candidates: the seconds per batch on each tier, for every split.

use crate::{Candidate, Stages, TrainerProfile, UsableSplit, Work, Workload};
use frostline_wire::{CutProfile, Encoded, Encoding, Platform, Profile, Split};
use std::collections::BTreeMap;

/// A lossy encoding is only chosen if it reduces the objective below this fraction.
const WORTH_ROUNDING: f64 = 0.97;

/// Measurements that are used for planning.
#[derive(Debug, Clone, PartialEq)]
pub struct Survey {
    /// Profile of the host. For several hosts, this is the profile of the slowest host.
    pub host: Profile,
    /// Profile of this machine.
    pub trainer: TrainerProfile,
    /// Mean object size in bytes.
    pub object_bytes: f64,
    /// Number of hosts. They are assumed to be equally fast, and the batch is divided evenly.
    pub hosts: usize,
    /// Number of other extractions on the host, which share the lanes.
    pub neighbors: u64,
    /// Corrections of the profiles observed during the job.
    pub slowdown: Slowdown,
}

/// Observed durations relative to the profiles. The default is 1 for both.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slowdown {
    /// Slowdown of the hosts.
    pub host: f64,
    /// Slowdown of the trainer.
    pub trainer: f64,
}

/// Bytes and seconds per sample at a split.
struct SampleCost {
    /// Bytes on the link.
    bytes: f64,
    /// Seconds on the host while all cores are busy.
    host: f64,
    /// Core-seconds on the host.
    host_cores: f64,
    /// Thread-seconds of decoding and normalization on the trainer.
    decoding: f64,
    /// Seconds of the middle on the trainer's engine.
    middle: f64,
}

impl Default for Slowdown {
    fn default() -> Self {
        Self {
            host: 1.0,
            trainer: 1.0,
        }
    }
}

impl Survey {
    /// Returns the measured candidates for the usable splits. The encoding minimizes the objective, which is
    /// either job time or cost.
    ///
    /// The exact encoding is preferred: another encoding must reduce the objective by more than 3 %.
    pub(crate) fn candidates(&self, splits: &[UsableSplit], workload: &Workload) -> Vec<Candidate> {
        splits
            .iter()
            .filter_map(|usable| self.best(usable, workload))
            .collect()
    }

    fn best(&self, usable: &UsableSplit, workload: &Workload) -> Option<Candidate> {
        let all = usable
            .encodings
            .iter()
            .filter_map(|&encoding| self.candidate(&usable.split, encoding, workload));
        // The exact encoding is always first.
        all.reduce(|best, other| {
            if other.objective(workload) < best.objective(workload) * WORTH_ROUNDING {
                other
            } else {
                best
            }
        })
    }

    /// Returns the split in the given encoding, or `None` if it was not measured.
    pub(crate) fn candidate(
        &self,
        split: &Split,
        encoding: Encoding,
        workload: &Workload,
    ) -> Option<Candidate> {
        let batch = workload.batch as f64;
        let sample = self.sample(split, encoding, workload.batch)?;
        let reading = self.host.read_seconds_per_sample / self.host.reads_at_once.max(1) as f64;
        let host = sample.host + self.host.read_busy_seconds_per_sample;
        let share = batch / self.hosts.max(1) as f64;
        let host = host.max(reading) * share * self.slowdown.host * (1 + self.neighbors) as f64;
        let decoding = sample.decoding / self.trainer.platform.decode_threads.max(1) as f64;
        let step = self.step(workload.batch);
        let engine = engine_cores(&self.trainer.platform);
        let engine_seconds = sample.middle * batch + step;
        let trainer =
            overlapped(&self.trainer.platform, decoding * batch, engine_seconds) * self.slowdown.trainer;
        Some(Candidate {
            split: split.clone(),
            encoding,
            stages: Stages {
                host_seconds: host,
                link_seconds: sample.bytes * batch / workload.link_bytes_per_second,
                trainer_seconds: trainer,
                step_seconds: step * self.slowdown.trainer,
                upload_seconds: 0.0,
            },
            work: Work {
                host_core_seconds: (sample.host_cores + self.reading_cores()) * batch * self.slowdown.host,
                trainer_core_seconds: (sample.decoding * batch + engine_seconds * engine)
                    * self.slowdown.trainer,
                step_core_seconds: step * engine * self.slowdown.trainer,
            },
            bytes_per_sample: sample.bytes,
        })
    }

    /// Returns the cost per sample in batches of `batch` samples, or `None` if the split or the encoding was
    /// not measured.
    fn sample(&self, split: &Split, encoding: Encoding, batch: usize) -> Option<SampleCost> {
        let trainer = &self.trainer;
        let normalizing = trainer.normalize_seconds_per_sample;
        Some(match split {
            Split::None => SampleCost {
                bytes: self.object_bytes,
                host: 0.0,
                host_cores: 0.0,
                decoding: trainer.decode_seconds_per_sample + normalizing,
                middle: self.middle(None, batch)?,
            },
            Split::Input => {
                let wire = encoded(&self.host.input, encoding)?;
                let here = encoded(&trainer.input, encoding)?.decode_seconds_per_sample;
                SampleCost {
                    bytes: wire.bytes_per_sample,
                    host: self.decode_on_host() + self.encode_on_host(wire),
                    host_cores: self.host.decode_seconds_per_sample + wire.encode_seconds_per_sample,
                    decoding: here + normalizing,
                    middle: self.middle(None, batch)?,
                }
            }
            Split::Cut(name) => {
                let there = cut(&self.host.cuts, name)?;
                let wire = encoded(&there.encoded, encoding)?;
                let here = encoded(&cut(&trainer.cuts, name)?.encoded, encoding)?;
                SampleCost {
                    bytes: wire.bytes_per_sample,
                    host: self.prefix_on_host(there, wire, batch),
                    host_cores: self.prefix_cores(there, wire, batch),
                    decoding: here.decode_seconds_per_sample,
                    middle: self.middle(Some(name), batch)?,
                }
            }
        })
    }

    /// Seconds to decode a sample while all decode threads are busy.
    fn decode_on_host(&self) -> f64 {
        self.host.decode_seconds_per_sample / self.host_threads()
    }

    /// Seconds to encode a sample while all decode threads are busy.
    fn encode_on_host(&self, wire: Encoded) -> f64 {
        wire.encode_seconds_per_sample / self.host_threads()
    }

    /// Seconds to decode a sample, compute it up to `cut` and encode it.
    fn prefix_on_host(&self, cut: &CutProfile, wire: Encoded, batch: usize) -> f64 {
        let pixels = self.decode_on_host() + self.encode_on_host(wire);
        let compute = busy(cut, &self.host.platform, batch);
        overlapped(&self.host.platform, pixels, compute)
    }

    /// Core-seconds for [`Self::prefix_on_host`]. If the host computes on a GPU, all decode threads are
    /// counted while it works on the sample.
    fn prefix_cores(&self, cut: &CutProfile, wire: Encoded, batch: usize) -> f64 {
        let platform = &self.host.platform;
        if platform.device == "cpu" {
            let pixels = self.host.decode_seconds_per_sample + wire.encode_seconds_per_sample;
            pixels + busy(cut, platform, batch) * engine_cores(platform)
        } else {
            self.prefix_on_host(cut, wire, batch) * self.host_threads()
        }
    }

    /// Core-seconds for reading an object on the host.
    fn reading_cores(&self) -> f64 {
        self.host.read_busy_seconds_per_sample * engine_cores(&self.host.platform)
    }

    /// Seconds per sample on the trainer for the layers from `split` to the freeze cut, in batches of `batch`
    /// samples.
    ///
    /// If `split` is `None`, the layers start at the network's input. Returns 0 if no layer is frozen and
    /// `None` if `split` was not measured.
    fn middle(&self, split: Option<&str>, batch: usize) -> Option<f64> {
        let Some(freeze) = self.trainer.cuts.last() else {
            return Some(0.0);
        };
        let freeze = busy(freeze, &self.trainer.platform, batch);
        let before = match split {
            Some(name) => busy(cut(&self.trainer.cuts, name)?, &self.trainer.platform, batch),
            None => 0.0,
        };
        Some((freeze - before).max(0.0))
    }

    /// Seconds for a training step with `batch` samples, scaled linearly from the measured step.
    fn step(&self, batch: usize) -> f64 {
        self.trainer.step_seconds * batch as f64 / self.trainer.batch.max(1) as f64
    }

    fn host_threads(&self) -> f64 {
        self.host.platform.decode_threads.max(1) as f64
    }
}

/// Seconds for work on the cores and computations of the engine. On a CPU both use the same cores, so the times
/// are added; on a GPU they overlap.
fn overlapped(platform: &Platform, cores: f64, engine: f64) -> f64 {
    if platform.device == "cpu" {
        cores + engine
    } else {
        cores.max(engine)
    }
}

/// Number of cores used by the engine. On a machine with a GPU this is the number of decode threads.
fn engine_cores(platform: &Platform) -> f64 {
    let cores = if platform.device == "cpu" {
        platform.lanes * platform.threads_per_lane
    } else {
        platform.decode_threads
    };
    cores.max(1) as f64
}

fn cut<'a>(cuts: &'a [CutProfile], name: &str) -> Option<&'a CutProfile> {
    cuts.iter().find(|cut| cut.name == name)
}

/// Seconds per sample up to `cut` while all lanes are busy, in batches of `batch` samples.
///
/// The engine divides a batch into equal executions. The fixed cost per execution, such as reading the
/// weights of a large layer, has more effect in small executions than in the measured ones, so the measured
/// time is scaled accordingly.
fn busy(cut: &CutProfile, platform: &Platform, batch: usize) -> f64 {
    let batch = batch.max(1);
    let most = platform.rows.max(1);
    let rows = batch as f64 / batch.div_ceil(most) as f64;
    let [measured, actual] =
        [most as f64, rows].map(|rows| cut.compute.fixed / rows + cut.compute.per_sample);
    if measured > 0.0 {
        cut.busy_seconds_per_sample * actual / measured
    } else {
        cut.busy_seconds_per_sample
    }
}

/// Returns the measurement for `encoding`, or the measurement for the same values without compression.
fn encoded(measured: &BTreeMap<String, Encoded>, encoding: Encoding) -> Option<Encoded> {
    measured
        .get(&encoding.to_string())
        .or_else(|| measured.get(&Encoding::plain(encoding.values).to_string()))
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_wire::Linear;

    #[test]
    fn a_padded_run_takes_its_time_however_few_rows_it_has() {
        let run = 0.010;
        let platform = Platform {
            machine: String::new(),
            device: "cuda:0".to_owned(),
            library: String::new(),
            lanes: 1,
            threads_per_lane: 1,
            decode_threads: 16,
            rows: 32,
        };
        let cut = CutProfile {
            name: "pool".to_owned(),
            compute: Linear {
                fixed: run,
                per_sample: 0.0,
            },
            busy_seconds_per_sample: run / 32.0,
            bytes_per_sample: 8192,
            encoded: BTreeMap::new(),
            memory: Linear::default(),
        };
        for (batch, runs) in [(1, 1.0), (8, 1.0), (32, 1.0), (64, 2.0), (80, 3.0)] {
            let seconds = busy(&cut, &platform, batch) * batch as f64;
            assert!((seconds - runs * run).abs() < 1e-9, "{batch}: {seconds}");
        }
    }
}
