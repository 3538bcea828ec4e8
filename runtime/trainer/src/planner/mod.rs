//! The plan of a running job: made from measurements before the first batch, kept true by what is seen, changed when another split
//! would save enough of what is left.

mod recent;

use crate::client::Link;
use crate::plan::{
    Candidate, Explanation, Layers, LinkPoint, Plan, Policy, Summary, Survey, Workload, over_links, unfit,
};
use crate::{Flow, Possible, TrainerError};
use frostline_wire::{Profile, Split};
use recent::{Bunch, Recent};

/// Iterations after a change that say nothing yet: batches asked for before it, and the pipeline filling again.
const SETTLING: u64 = 3;
/// Another split must need at most this share of the present one's predicted rest, so that noise changes nothing.
const MARGIN: f64 = 0.9;
/// Steps' worth of time that must have been lost to another split before it is taken, about what a change disturbs: large gains are
/// taken at once, small ones when they last.
const LOST: f64 = 2.0;
/// A wait for data of less than this share of an iteration means that the trainer is what bounds it.
const WAITING: f64 = 0.1;
/// Below this share of the requests' time spent on the host, the link bounds an iteration; above the other, the host.
const ON_HOST: (f64, f64) = (0.6, 0.85);

/// Fewer samples than this in a request leave the host's lanes with batches too small to be worth running.
const SMALLEST_REQUEST: usize = 8;

/// One training iteration as the trainer saw it.
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

/// A change of split, of encoding, or of both.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    pub(crate) to: Candidate,
    pub(crate) request_samples: usize,
    pub(crate) reason: String,
}

/// See the module.
pub(crate) struct Planner {
    survey: Survey,
    possible: Vec<Possible>,
    workload: Workload,
    link: Link,
    policy: Policy,
    most: Flow,
    layers: Layers,
    present: Option<Candidate>,
    host: Recent,
    trainer: Recent,
    rate: Recent,
    bunch: Bunch,
    settling: u64,
    /// Steps' worth of time lost since another split has been better.
    lost: f64,
}

impl Planner {
    /// A planner for a job of `workload` on `possible` splits.
    pub(crate) fn new(
        survey: Survey,
        possible: Vec<Possible>,
        workload: Workload,
        link: Link,
        policy: Policy,
        most: Flow,
    ) -> Self {
        Self {
            survey,
            possible,
            workload,
            link,
            policy,
            most,
            layers: Layers::There,
            present: None,
            host: Recent::default(),
            trainer: Recent::default(),
            rate: Recent::default(),
            bunch: Bunch::default(),
            settling: SETTLING,
            lost: 0.0,
        }
    }

    /// The same planner, which also tells where the frozen layers are.
    pub(crate) fn with_layers(mut self, layers: Layers) -> Self {
        self.layers = layers;
        self
    }

    /// A plan in words.
    pub(crate) fn explain(&self, plan: &Plan) -> Explanation {
        Explanation {
            layers: self.layers.explain(plan),
            ..plan.explain(&self.workload)
        }
    }

    /// A plan as scripts read it.
    pub(crate) fn summary(&self, plan: &Plan, flow: Flow) -> Option<Summary> {
        let (upload_bytes, upload_seconds) = self.layers.sent();
        Some(Summary {
            upload_bytes,
            upload_seconds,
            upload_reason: self.layers.explain(plan),
            ..plan.summary(flow, &self.workload)?
        })
    }

    /// The hosts were measured after all: what was believed of them, and what was seen against that, holds no longer.
    pub(crate) fn profiled(&mut self, host: Profile) {
        self.survey.host = host;
        self.survey.seen.host = 1.0;
        self.host.forget();
        self.lost = 0.0;
        self.refresh();
    }

    /// `split` in the encoding that makes the job shortest.
    pub(crate) fn candidate(&self, split: &Split) -> Option<Candidate> {
        let mut candidates = self.survey.candidates(&self.possible, &self.workload).into_iter();
        candidates.find(|candidate| candidate.split == *split)
    }

    /// The plan by what is known now. `None` when nothing fits the policy.
    pub(crate) fn plan(&self) -> Option<Plan> {
        let candidates = self.survey.candidates(&self.possible, &self.workload);
        Plan::choose(candidates, &self.workload, &self.policy)
    }

    /// Why there is no plan by `policy`.
    pub(crate) fn unfit(&self, policy: &Policy) -> TrainerError {
        TrainerError::Policy {
            policy: policy.to_string(),
            why: unfit(policy, self.possible.iter().map(|possible| &possible.split)),
        }
    }

    /// What the best split is worth over links of any speed, by what is known now.
    pub(crate) fn over_links(&self) -> Vec<LinkPoint> {
        over_links(&self.workload, |workload| {
            let candidates = self.survey.candidates(&self.possible, workload);
            Plan::choose(candidates, workload, &Policy::Auto)
        })
    }

    /// How to ask for batches at `candidate`. A request travels within a second, so that a lost one costs little and the next batch's first
    /// rows come early. As many batches are extracted ahead as the stages before the trainer work on at once, and one more that
    /// waits; as many requests are open as cover them.
    pub(crate) fn flow(&self, candidate: &Candidate) -> Flow {
        let (batch, most) = (self.workload.batch.max(1), self.most);
        let second = self.workload.link_bytes_per_second / candidate.bytes_per_sample.max(1.0);
        let smallest = SMALLEST_REQUEST.min(most.request_samples).min(batch).max(1);
        let largest = most.request_samples.min(batch).max(smallest);
        let request_samples = (second as usize).clamp(smallest, largest);
        let stages = &candidate.stages;
        let steady = self
            .workload
            .predict(stages)
            .steady_seconds
            .max(f64::MIN_POSITIVE);
        let at_work = ((stages.host_seconds + stages.link_seconds) / steady).ceil() as usize;
        let ahead = (at_work + 1).clamp(1, most.ahead.max(1));
        let window = (batch.div_ceil(request_samples) * (ahead + 1)).clamp(1, most.window.max(1));
        Flow {
            request_samples,
            window,
            ahead,
        }
    }

    pub(crate) fn workload(&self) -> &Workload {
        &self.workload
    }

    pub(crate) fn link(&self) -> Link {
        self.link
    }

    /// The job goes on with this candidate.
    pub(crate) fn start(&mut self, candidate: Candidate) {
        let together = self.flow(&candidate).ahead + 1;
        self.bunch.clear(together);
        // A bunch with one slow batch in it shows in as many sums as it has batches; a median is to outlive it.
        for recent in [&mut self.host, &mut self.trainer, &mut self.rate] {
            recent.clear(2 * self.bunch.most() + 1);
        }
        self.present = Some(candidate);
        self.settling = SETTLING;
        self.lost = 0.0;
    }

    /// Takes in an iteration at the present split and says whether to change it; `left` iterations are to come.
    pub(crate) fn saw(&mut self, iteration: &Iteration, left: u64) -> Option<Change> {
        let present = self.present.clone()?;
        if self.settling > 0 {
            self.settling -= 1;
            return None;
        }
        let together = self.bunch.add(*iteration)?;
        self.learn(&together, &present);
        if self.policy != Policy::Auto || !self.trainer.is_full() {
            return None;
        }
        self.workload.iterations = left.max(1);
        self.consider()
    }

    /// Corrects the survey by what iterations in a row show: always the trainer; the host or the link when they bound it; and never
    /// believes them slower than they were just seen to be.
    fn learn(&mut self, together: &Iteration, present: &Candidate) {
        let full = self.workload.batch as f64 / together.samples.max(1) as f64;
        let took = (together.waited + together.computed) * full;
        // On the same cores the host works only while the trainer does not.
        let extracting = if self.workload.shared_cores {
            together.waited * full
        } else {
            took
        };
        let stages = &present.stages;
        let seen = self.survey.seen;
        let profiled = |seconds: f64, factor: f64| seconds / factor.max(f64::MIN_POSITIVE);
        let trainer = profiled(stages.trainer_seconds, seen.trainer);
        if trainer > 0.0 {
            self.trainer.add(together.computed * full / trainer);
        }
        let host = profiled(stages.host_seconds, seen.host);
        // Without work on the host it is as good as its profile.
        let slowness = if host > 0.0 {
            extracting / host
        } else {
            f64::INFINITY
        };
        let rate = together.bytes as f64 * full / took;
        let starved = together.waited > WAITING * (together.waited + together.computed);
        let (on_link, on_host) = match together.on_host {
            Some(share) if starved => (share < ON_HOST.0, share > ON_HOST.1),
            _ => (false, false),
        };
        if on_link {
            self.rate.add(rate);
        } else if self.rate.median().is_some_and(|believed| believed < rate) {
            self.rate.forget();
        }
        if on_host {
            self.host.add(slowness);
        } else if self.host.median().is_some_and(|believed| slowness < believed) {
            self.host.forget();
        }
        if let Some(factor) = self.trainer.median() {
            self.survey.seen.trainer = factor;
        }
        self.survey.seen.host = match self.host.median() {
            Some(factor) => factor,
            None => seen.host.min(slowness.max(1.0)),
        };
        let link = &mut self.workload.link_bytes_per_second;
        *link = self.rate.median().unwrap_or(link.max(rate));
        self.refresh();
    }

    /// The present candidate, in its present encoding, under what is known now.
    fn refresh(&mut self) {
        let Some(present) = &self.present else { return };
        let same = self
            .survey
            .candidate(&present.split, present.encoding, &self.workload);
        if let Some(same) = same {
            self.present = Some(same);
        }
    }

    fn consider(&mut self) -> Option<Change> {
        let present = self.present.clone()?;
        let plan = self.plan()?;
        let best = plan.chosen()?;
        let now = self.workload.predict(&present.stages);
        // The pipeline is full already here, and has to be filled again there.
        let rest = now.steady_seconds * self.workload.iterations as f64;
        let saves = best.prediction.total_seconds < MARGIN * rest;
        let way = |candidate: &Candidate| (candidate.split.clone(), candidate.encoding);
        if way(&best.candidate) == way(&present) || !saves {
            self.lost = 0.0;
            return None;
        }
        self.lost += 1.0 - best.prediction.steady_seconds / now.steady_seconds;
        if self.lost < LOST {
            return None;
        }
        let reason = format!(
            "the {} bounds '{}' in {} at {:.2} s an iteration; '{}' in {} would take {:.2} s (link {}, host {:.1} times its profile, trainer {:.1} times)",
            now.bottleneck,
            present.split,
            present.encoding,
            now.steady_seconds,
            best.candidate.split,
            best.candidate.encoding,
            best.prediction.steady_seconds,
            crate::plan::rate(self.workload.link_bytes_per_second),
            self.survey.seen.host,
            self.survey.seen.trainer,
        );
        let request_samples = self.flow(&best.candidate).request_samples;
        Some(Change {
            request_samples,
            to: best.candidate.clone(),
            reason,
        })
    }
}
