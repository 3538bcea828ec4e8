use super::observed::{Iteration, Observed};
use super::recent::SlidingWindow;
use crate::candidate::Ranked;
use crate::text::rate;
use crate::{Bottleneck, Candidate, Planner, Workload};
use frostline_job::{Objective, Policy};
use frostline_tensor::format_number;
use frostline_wire::Profile;

/// Iterations to ignore after a change, because they use earlier requests and the pipeline is still being
/// filled.
const SETTLING: u64 = 3;
/// The remaining time (or cost) with another split must be below this fraction of the prediction for the
/// present split. This prevents changes because of noise.
const MARGIN: f64 = 0.9;
/// Number of steps by which the present split must fall behind before the job changes to another split. This
/// is approximately the cost of a change. As a result, large gains are used immediately, and small gains only
/// if they persist.
const LOST: f64 = 2.0;

/// A change of split or encoding.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The split and encoding of later batches.
    pub to: Candidate,
    /// Samples per request.
    pub request_samples: usize,
    /// Explanation in a single line.
    pub reason: String,
}

/// Corrects the planner with observations and changes the split if this saves enough.
pub struct Replanner {
    planner: Planner,
    /// Planned workload.
    job: Workload,
    present: Candidate,
    host: SlidingWindow<f64>,
    trainer: SlidingWindow<f64>,
    rate: SlidingWindow<f64>,
    bunch: SlidingWindow<Iteration>,
    settling: u64,
    /// Number of steps that could have been saved since another split became better.
    steps_lost: f64,
}

impl Replanner {
    /// Creates a replanner for a job that starts with the candidate `first`.
    pub fn new(planner: Planner, first: Candidate) -> Self {
        let mut replanner = Self {
            job: planner.workload,
            planner,
            present: first.clone(),
            host: SlidingWindow::default(),
            trainer: SlidingWindow::default(),
            rate: SlidingWindow::default(),
            bunch: SlidingWindow::default(),
            settling: SETTLING,
            steps_lost: 0.0,
        };
        replanner.start(first);
        replanner
    }

    /// Returns the planner with the current corrections.
    pub fn planner(&self) -> &Planner {
        &self.planner
    }

    /// Returns the number of iterations that still fetch after `done` iterations.
    pub fn fetching_after(&self, done: u64) -> u64 {
        self.job.with_encoding(self.present.encoding).fetching_after(done)
    }

    /// Replaces the profile of the hosts and discards the corrections of the previous profile.
    pub fn replace_host_profile(&mut self, host: Profile) {
        self.planner.survey.host = host;
        self.planner.survey.slowdown.host = 1.0;
        self.host.forget();
        self.steps_lost = 0.0;
        self.refresh();
    }

    /// Starts the observation of a new candidate.
    pub fn start(&mut self, candidate: Candidate) {
        let together = self.planner.flow(&candidate).ahead + 1;
        // Keep a larger size, because some of the earlier batches might still be in flight.
        self.bunch.clear(together.max(self.bunch.limit()));
        // If a bunch has `n` batches, a slow batch affects `n` sums. The window must be long enough for the
        // median to ignore them.
        for recent in [&mut self.host, &mut self.trainer, &mut self.rate] {
            recent.clear(2 * self.bunch.limit() + 1);
        }
        self.present = candidate;
        self.settling = SETTLING;
        self.steps_lost = 0.0;
    }

    /// Adds an iteration at the present split that fetched all activations, and decides whether to change the
    /// split. `left` is the number of remaining iterations that fetch, because only these can benefit from a
    /// change.
    pub fn observe(&mut self, iteration: &Iteration, left: u64) -> Option<Change> {
        if self.settling > 0 {
            self.settling -= 1;
            return None;
        }
        let together = self.bunch.add(*iteration)?;
        self.learn(&Observed::from_iterations(
            &together,
            &self.present,
            &self.planner,
        ));
        if self.planner.policy != Policy::Auto || !self.trainer.is_full() || left == 0 {
            return None;
        }
        self.planner.workload = self.planner.workload.only_fetching(left);
        self.consider()
    }

    /// Corrects the planner with consecutive iterations. The trainer is always corrected; host and link are
    /// corrected if they are the bottleneck. An observed lower limit on their speed also replaces a slower
    /// estimate.
    fn learn(&mut self, observed: &Observed) {
        let Observed { host, rate, .. } = *observed;
        if let Some(trainer) = observed.trainer {
            self.trainer.add(trainer);
        }
        if observed.bottleneck == Some(Bottleneck::Link) {
            self.rate.add(rate);
        } else if self.rate.median().is_some_and(|believed| believed < rate) {
            self.rate.forget();
        }
        if observed.bottleneck == Some(Bottleneck::Host) {
            self.host.add(host);
        } else if self.host.median().is_some_and(|believed| host < believed) {
            self.host.forget();
        }
        let slowdown = &mut self.planner.survey.slowdown;
        slowdown.trainer = self.trainer.median().unwrap_or(slowdown.trainer);
        let unseen = slowdown.host.min(host.max(1.0));
        slowdown.host = self.host.median().unwrap_or(unseen);
        let link = &mut self.planner.workload.link_bytes_per_second;
        *link = self.rate.median().unwrap_or(link.max(rate));
        self.refresh();
    }

    /// Updates the prediction for the present split and encoding.
    fn refresh(&mut self) {
        let Planner { survey, workload, .. } = &self.planner;
        let same = survey.candidate(&self.present.split, self.present.encoding, workload);
        if let Some(same) = same {
            self.present = same;
        }
    }

    fn consider(&mut self) -> Option<Change> {
        let best = self.planner.plan().ok()?.chosen;
        let workload = &self.planner.workload;
        let now = self.present.iteration_objective(workload);
        // The pipeline is already full with the present split, but another split has to fill it first.
        let rest = now * workload.iterations as f64;
        let saves = best.candidate.objective(workload) < MARGIN * rest;
        if best.candidate.is_same_way(&self.present) || !saves {
            self.steps_lost = 0.0;
            return None;
        }
        self.steps_lost += 1.0 - best.candidate.iteration_objective(workload) / now;
        (self.steps_lost >= LOST).then(|| self.change(&best))
    }

    fn change(&self, best: &Ranked) -> Change {
        let workload = &self.planner.workload;
        let slowdown = self.planner.survey.slowdown;
        let now = self.present.predict(workload);
        let modules = &self.planner.modules;
        let reason = format!(
            "'{}' in {} is bound by the {} at {} per iteration; '{}' in {} would take {} (link {}, host {:.1}x its profile, trainer {:.1}x)",
            modules.label(&self.present.split),
            self.present.encoding,
            now.bottleneck,
            takes(&self.present, now.steady_seconds, workload),
            modules.label(&best.candidate.split),
            best.candidate.encoding,
            takes(&best.candidate, best.prediction.steady_seconds, workload),
            rate(workload.link_bytes_per_second),
            slowdown.host,
            slowdown.trainer,
        );
        Change {
            to: best.candidate.clone(),
            request_samples: self.planner.flow(&best.candidate).request_samples,
            reason,
        }
    }
}

/// Describes the duration of an iteration and, if the plan minimizes the cost, its cost.
fn takes(candidate: &Candidate, seconds: f64, workload: &Workload) -> String {
    match workload.cost.objective {
        Objective::Time => format!("{seconds:.2} s"),
        Objective::Cost => {
            let cost = format_number(candidate.iteration_objective(workload));
            format!("{seconds:.2} s, which costs {cost}")
        }
    }
}
