//! Compares the measured iterations with the profiles of host, link and trainer.

use crate::plan::{Bottleneck, Candidate, Planner};

/// A wait for data of less than this share of an iteration means that the trainer is what bounds it.
const WAITING: f64 = 0.1;
/// Below this share of the requests' time spent on the host, the link bounds an iteration; above the other, the host.
const ON_HOST: (f64, f64) = (0.6, 0.85);

/// One training iteration as the trainer saw it, or some in a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Iteration {
    /// Seconds spent waiting for the batch.
    pub(crate) waited: f64,
    /// Seconds of the middle and the step.
    pub(crate) computed: f64,
    /// Samples of the batch.
    pub(crate) samples: usize,
    /// Bytes of its answers.
    pub(crate) bytes: u64,
    /// Share of its requests' time that the host says it worked on them; `None` when it does not say.
    pub(crate) on_host: Option<f64>,
}

impl Iteration {
    /// Host or link, if one of them bounds it and it is plain which.
    fn bottleneck(&self) -> Option<Bottleneck> {
        let starved = self.waited > WAITING * (self.waited + self.computed);
        match self.on_host.filter(|_| starved)? {
            share if share < ON_HOST.0 => Some(Bottleneck::Link),
            share if share > ON_HOST.1 => Some(Bottleneck::Host),
            _ => None,
        }
    }
}

/// What iterations at one split show of each tier.
pub(super) struct Observed {
    /// How many times its profile the trainer takes; `None` where it has nothing to do.
    pub(super) trainer: Option<f64>,
    /// How many times its profile the host takes at most; infinite where it has nothing to do.
    pub(super) host: f64,
    /// Bytes per second that the link moves at least.
    pub(super) rate: f64,
    /// Host or link, where one of them bounds the iterations.
    pub(super) bottleneck: Option<Bottleneck>,
}

impl Observed {
    /// What `iterations`, added up, show at `present`.
    pub(super) fn from_iterations(iterations: &Iteration, present: &Candidate, planner: &Planner) -> Self {
        let Planner { survey, workload, .. } = planner;
        let full = workload.batch as f64 / iterations.samples.max(1) as f64;
        let took = (iterations.waited + iterations.computed) * full;
        // On the same cores the host works only while the trainer does not.
        let extracting = if workload.shared_cores {
            iterations.waited * full
        } else {
            took
        };
        let (stages, slowdown) = (&present.stages, survey.slowdown);
        let profiled = |seconds: f64, factor: f64| seconds / factor.max(f64::MIN_POSITIVE);
        let trainer = profiled(stages.trainer_seconds, slowdown.trainer);
        let host = profiled(stages.host_seconds, slowdown.host);
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
