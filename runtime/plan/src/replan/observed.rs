//! Compares the measured iterations with the profiles of host, link and trainer.

use crate::{Bottleneck, Candidate, Planner};

/// If the trainer waits for data for less than this fraction of an iteration, the trainer is the bottleneck.
const WAITING: f64 = 0.1;
/// Fractions of the request time spent on the host. Below the first value the link is the bottleneck, and
/// above the second value the host is.
const HOST_TIME_FRACTIONS: (f64, f64) = (0.6, 0.85);

/// Measurements of a training iteration, or the sum if iterations are combined.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Iteration {
    /// Seconds spent waiting for the batch.
    pub waited: f64,
    /// Seconds of the middle and the step.
    pub computed: f64,
    /// Samples in the batch.
    pub samples: usize,
    /// Bytes in the responses for the batch.
    pub bytes: u64,
    /// Fraction of the request time spent on the host, or `None` if the host does not report it.
    pub on_host: Option<f64>,
}

impl Iteration {
    /// Returns host or link if it is clearly the bottleneck.
    fn bottleneck(&self) -> Option<Bottleneck> {
        let starved = self.waited > WAITING * (self.waited + self.computed);
        match self.on_host.filter(|_| starved)? {
            share if share < HOST_TIME_FRACTIONS.0 => Some(Bottleneck::Link),
            share if share > HOST_TIME_FRACTIONS.1 => Some(Bottleneck::Host),
            _ => None,
        }
    }
}

/// Performance of the tiers observed at a split.
pub(super) struct Observed {
    /// Duration on the trainer relative to the profile, or `None` if the trainer has no work.
    pub(super) trainer: Option<f64>,
    /// Upper limit for the duration on the host relative to the profile. This is infinite if the host has no
    /// work.
    pub(super) host: f64,
    /// Lower limit for the link rate in bytes per second.
    pub(super) rate: f64,
    /// Host or link, if it is clearly the bottleneck.
    pub(super) bottleneck: Option<Bottleneck>,
}

impl Observed {
    /// Compares the sum of `iterations` with the prediction for the `present` candidate.
    pub(super) fn from_iterations(iterations: &Iteration, present: &Candidate, planner: &Planner) -> Self {
        let Planner { survey, workload, .. } = planner;
        let full = workload.batch as f64 / iterations.samples.max(1) as f64;
        let took = (iterations.waited + iterations.computed) * full;
        // With shared cores, the host only works while the trainer waits.
        let extracting = if workload.shared_cores {
            iterations.waited * full
        } else {
            took
        };
        let stages = &present.stages;
        let slowdown = survey.slowdown;
        let trainer = stages.trainer_seconds / slowdown.trainer.max(f64::MIN_POSITIVE);
        let host = stages.host_seconds / slowdown.host.max(f64::MIN_POSITIVE);
        Self {
            trainer: (trainer > 0.0).then(|| iterations.computed * full / trainer),
            host: if host > 0.0 {
                extracting / host
            } else {
                f64::INFINITY
            },
            rate: iterations.bytes as f64 * full / took,
            bottleneck: iterations.bottleneck(),
        }
    }
}
