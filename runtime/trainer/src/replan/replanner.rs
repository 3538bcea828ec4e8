use super::observed::{Iteration, Observed};
use super::recent::{Bunch, Recent};
use crate::Policy;
use crate::plan::{Bottleneck, Candidate, Planner, Ranked, Workload, rate};
use frostline_job::Objective;
use frostline_tensor::shown_number;
use frostline_wire::Profile;

/// Iterations after a change that say nothing yet: batches asked for before it, and the pipeline filling again.
const SETTLING: u64 = 3;
/// Another split must need at most this share of the time (or cost) that the present one is predicted to need for the rest, so that noise changes nothing.
const MARGIN: f64 = 0.9;
/// Steps' worth of time, or of cost, that must have been lost to another split before it is taken, about what a change disturbs: large gains are
/// taken at once, small ones when they last.
const LOST: f64 = 2.0;

/// A change of split, of encoding, or of both.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    pub(crate) to: Candidate,
    pub(crate) request_samples: usize,
    pub(crate) reason: String,
}

/// Corrects a planner by what is seen, and changes the split where that saves enough.
pub(crate) struct Replanner {
    planner: Planner,
    /// As it was planned.
    job: Workload,
    present: Candidate,
    host: Recent,
    trainer: Recent,
    rate: Recent,
    bunch: Bunch,
    settling: u64,
    /// Steps' worth of time, or of cost, lost since another split has been better.
    lost: f64,
}

impl Replanner {
    /// For a job that begins with this candidate.
    pub(crate) fn new(planner: Planner, first: Candidate) -> Self {
        let mut replanner = Self {
            job: planner.workload,
            planner,
            present: first.clone(),
            host: Recent::default(),
            trainer: Recent::default(),
            rate: Recent::default(),
            bunch: Bunch::default(),
            settling: SETTLING,
            lost: 0.0,
        };
        replanner.start(first);
        replanner
    }

    /// What is known now.
    pub(crate) fn planner(&self) -> &Planner {
        &self.planner
    }

    /// How many iterations still fetch once `done` are over.
    pub(super) fn fetching_after(&self, done: u64) -> u64 {
        self.job.traveling(self.present.encoding).fetching_after(done)
    }

    /// The hosts were measured after all: what was believed of them, and what was seen against that, holds no longer.
    pub(crate) fn profiled(&mut self, host: Profile) {
        self.planner.survey.host = host;
        self.planner.survey.slowdown.host = 1.0;
        self.host.forget();
        self.lost = 0.0;
        self.refresh();
    }

    /// The job goes on with this candidate.
    pub(crate) fn start(&mut self, candidate: Candidate) {
        let together = self.planner.flow(&candidate).ahead + 1;
        self.bunch.clear(together);
        // A bunch with one slow batch in it shows in as many sums as it has batches; a median is to outlive it.
        for recent in [&mut self.host, &mut self.trainer, &mut self.rate] {
            recent.clear(2 * self.bunch.most() + 1);
        }
        self.present = candidate;
        self.settling = SETTLING;
        self.lost = 0.0;
    }

    /// Takes in an iteration at the present split that fetched all of its rows, and says whether to change it; `left` iterations are to
    /// come that fetch, so that a change pays by these alone.
    pub(crate) fn saw(&mut self, iteration: &Iteration, left: u64) -> Option<Change> {
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
        self.planner.workload = self.planner.workload.fetching(left);
        self.consider()
    }

    /// Corrects the planner by what iterations in a row show: always the trainer; the host or the link when they bound it; and never
    /// believes them slower than they were just seen to be.
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

    /// The present candidate, in its present encoding, under what is known now.
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
        let iteration = |candidate: &Candidate| candidate.iteration_objective(workload);
        let now = iteration(&self.present);
        // The pipeline is full already here, and has to be filled again there.
        let rest = now * workload.iterations as f64;
        let saves = best.candidate.objective(workload) < MARGIN * rest;
        let way = |candidate: &Candidate| (candidate.split.clone(), candidate.encoding);
        if way(&best.candidate) == way(&self.present) || !saves {
            self.lost = 0.0;
            return None;
        }
        self.lost += 1.0 - iteration(&best.candidate) / now;
        (self.lost >= LOST).then(|| self.change(&best))
    }

    fn change(&self, best: &Ranked) -> Change {
        let (workload, slowdown) = (&self.planner.workload, self.planner.survey.slowdown);
        let now = workload.predict(&self.present.stages);
        let shown = |split| self.planner.modules.label(split);
        let takes = |candidate: &Candidate, seconds: f64| match workload.cost.objective {
            Objective::Time => format!("{seconds:.2} s"),
            Objective::Cost => {
                let cost = shown_number(candidate.iteration_objective(workload));
                format!("{seconds:.2} s and a cost of {cost}")
            }
        };
        let reason = format!(
            "'{}' in {} is bound by the {} at {} per iteration; '{}' in {} would take {} (link {}, host {:.1}x its profile, trainer {:.1}x)",
            shown(&self.present.split),
            self.present.encoding,
            now.bottleneck,
            takes(&self.present, now.steady_seconds),
            shown(&best.candidate.split),
            best.candidate.encoding,
            takes(&best.candidate, best.prediction.steady_seconds),
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
