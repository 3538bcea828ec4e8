//! A simulated world for the planner: a host and a link with given speeds, and jobs in which these change.

use crate::{
    CostModel, Iteration, LayersLocation, Modules, Planner, Replanner, Slowdown, Survey, TrainerProfile,
    UsableSplit, Workload,
};
use frostline_job::{FetchLimits, Policy};
use frostline_wire::{CutProfile, Encoded, Encoding, Linear, Link, Platform, Profile, Split};
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) const BATCH: usize = 100;
pub(super) const STEPS: u64 = 200;
pub(super) const MBIT: f64 = 1e6 / 8.0;

/// Seconds and bytes per sample at the cuts of a network with large early activations.
const CUTS: [(&str, f64, f64); 3] = [
    ("early", 0.010, 200e3),
    ("middle", 0.020, 60e3),
    ("freeze", 0.040, 4e3),
];
const OBJECT: f64 = 110e3;
const STEP: f64 = 0.5;

fn platform() -> Platform {
    Platform {
        machine: "test".to_owned(),
        device: "cpu".to_owned(),
        library: "none".to_owned(),
        lanes: 1,
        threads_per_lane: 1,
        decode_threads: 1,
        rows: 16,
    }
}

fn wire(bytes: f64) -> BTreeMap<String, Encoded> {
    let encoded = Encoded {
        bytes_per_sample: bytes,
        encode_seconds_per_sample: 0.0,
        decode_seconds_per_sample: 0.0,
    };
    [Encoding::F32, Encoding::U8]
        .map(|encoding| (encoding.to_string(), encoded))
        .into()
}

fn cuts() -> Vec<CutProfile> {
    let cut = |(name, seconds, bytes): (&str, f64, f64)| CutProfile {
        name: name.to_owned(),
        compute: Linear {
            fixed: 0.0,
            per_sample: seconds,
        },
        busy_seconds_per_sample: seconds,
        bytes_per_sample: bytes as u64,
        encoded: wire(bytes),
        memory: Linear::default(),
    };
    CUTS.map(cut).into()
}

pub(super) fn survey() -> Survey {
    Survey {
        host: Profile {
            platform: platform(),
            read_seconds_per_sample: 0.0,
            reads_at_once: 8,
            read_busy_seconds_per_sample: 0.0,
            decode_seconds_per_sample: 0.005,
            input: wire(150e3),
            cuts: cuts(),
            measured_in_seconds: 0.0,
            measured_at: 0,
            disturbed: false,
        },
        trainer: TrainerProfile {
            platform: platform(),
            decode_seconds_per_sample: 0.005,
            normalize_seconds_per_sample: 0.0,
            input: wire(150e3),
            cuts: cuts(),
            step_seconds: STEP,
            batch: BATCH,
            measured_in_seconds: 0.0,
            measured_at: 0,
        },
        object_bytes: OBJECT,
        hosts: 1,
        neighbors: 0,
        slowdown: Slowdown::default(),
    }
}

pub(super) fn possible() -> Vec<UsableSplit> {
    let split = |name: &str, encoding| UsableSplit {
        split: Split::from(name),
        encodings: vec![encoding],
        bytes_per_sample: 1,
    };
    let mut possible = vec![split("none", Encoding::F32), split("input", Encoding::U8)];
    possible.extend(CUTS.map(|(name, ..)| split(name, Encoding::F32)));
    possible
}

/// The actual speeds, independent of the planner's assumptions. `link` is in bytes per second, `host` is a
/// slowdown factor.
#[derive(Clone, Copy)]
pub(super) struct World {
    pub(super) link: f64,
    pub(super) host: f64,
}

pub(super) const MOST: FetchLimits = FetchLimits {
    request_samples: 32,
    window: 16,
    ahead: 3,
};

impl World {
    pub(super) fn workload(&self) -> Workload {
        Workload {
            batch: BATCH,
            iterations: STEPS,
            epoch_iterations: STEPS,
            epoch_samples: (BATCH as u64 * STEPS) as f64,
            link_bytes_per_second: self.link,
            shared_cores: false,
            request_share: 0.3,
            reuse: None,
            cost: CostModel::default(),
        }
    }

    pub(super) fn planner(&self) -> Planner {
        let link = Link {
            bytes_per_second: self.link,
            round_trip: Duration::ZERO,
            connections: 1,
            connection_bytes_per_second: self.link,
        };
        Planner {
            survey: survey(),
            splits: possible(),
            workload: self.workload(),
            link,
            policy: Policy::Auto,
            flow_limits: MOST,
            grant: None,
            layers: LayersLocation::default(),
            modules: Modules::default(),
        }
    }

    /// The planned split.
    pub(super) fn split(&self) -> Split {
        self.planner().choose().unwrap().1.split
    }

    pub(super) fn replanner(&self) -> Replanner {
        let planner = self.planner();
        let (first, _) = planner.choose().unwrap();
        Replanner::new(planner, first)
    }

    /// Seconds per iteration at `split` on the host, the link and the trainer.
    pub(super) fn stages(&self, split: &Split) -> (f64, f64, f64) {
        let survey = Survey {
            slowdown: Slowdown {
                host: self.host,
                trainer: 1.0,
            },
            ..survey()
        };
        let candidates = survey.candidates(&possible(), &self.workload());
        let candidate = candidates.into_iter().find(|candidate| candidate.split == *split);
        let stages = candidate.unwrap().stages;
        (stages.host_seconds, stages.link_seconds, stages.trainer_seconds)
    }

    pub(super) fn steady(&self, split: &Split) -> f64 {
        let (host, link, trainer) = self.stages(split);
        host.max(link).max(trainer)
    }

    pub(super) fn best(&self) -> f64 {
        let all = possible();
        all.iter()
            .map(|possible| self.steady(&possible.split))
            .fold(f64::INFINITY, f64::min)
    }

    /// Simulates an iteration. `noise` scales the time for host and link.
    pub(super) fn iteration(&self, split: &Split, noise: f64) -> Iteration {
        let (host, link, trainer) = self.stages(split);
        let upstream = host.max(link) * noise;
        let bytes = link * self.link;
        Iteration {
            waited: (upstream - trainer).max(0.0),
            computed: trainer,
            samples: BATCH,
            bytes: bytes as u64,
            on_host: Some((host / host.max(link)).clamp(0.01, 1.0)),
        }
    }
}

/// Runs a job in which the world changes to `later` after half the steps. Returns the split after a quarter
/// of the steps, the split at the end, and the number of changes.
pub(super) fn job(first: World, later: World, noise: impl Fn(u64) -> f64) -> (Split, Split, usize) {
    let mut replanner = first.replanner();
    let mut split = first.split();
    let mut quarter = split.clone();
    let mut changes = 0;
    for step in 0..STEPS {
        let world = if step < STEPS / 2 { first } else { later };
        if let Some(change) = replanner.observe(&world.iteration(&split, noise(step)), STEPS - step) {
            split = change.to.split.clone();
            replanner.start(change.to);
            changes += 1;
        }
        if step == STEPS / 4 {
            quarter = split.clone();
        }
    }
    (quarter, split, changes)
}

/// Simulates the waits if batches arrive in groups. The wait is added to the first batch of a group.
pub(super) fn bunched(step: u64, steady: Iteration) -> Iteration {
    let together = MOST.ahead as u64 + 1;
    let waited = if step.is_multiple_of(together) {
        steady.waited * together as f64
    } else {
        0.0
    };
    Iteration { waited, ..steady }
}
