use super::{
    Candidate, Chosen, Explanation, Layers, LinkPoint, Modules, Plan, Survey, UsableSplit, Workload,
    over_links, policy,
};
use crate::host_loads::in_whole_grants;
use crate::{Flow, Policy, TrainerError};
use frostline_client::Link;
use frostline_wire::Split;

/// Fewer samples than this in a request leave the host's lanes with batches too small to be worth running.
const SMALLEST_REQUEST: usize = 8;

/// All that a job's plan rests on, and the plan that follows from it.
pub(crate) struct Planner {
    pub(crate) survey: Survey,
    pub(crate) splits: Vec<UsableSplit>,
    pub(crate) workload: Workload,
    /// As it was measured; with several hosts, all links together.
    pub(crate) link: Link,
    pub(crate) policy: Policy,
    /// The most the job allows.
    pub(crate) most: Flow,
    /// Samples of one guest call, where the hosts tell.
    pub(crate) grant: Option<usize>,
    /// Where the frozen layers are.
    pub(crate) layers: Layers,
    /// What its cuts are called.
    pub(crate) modules: Modules,
}

impl Planner {
    /// The plan by what is known now.
    ///
    /// # Errors
    /// [`TrainerError::Policy`] when nothing fits the policy.
    pub(crate) fn plan(&self) -> Result<Plan, TrainerError> {
        let plan = self.plan_by(&self.policy, &self.workload);
        plan.ok_or_else(|| TrainerError::Policy {
            policy: self.policy.to_string(),
            why: policy::unfit(&self.policy, self.splits.iter().map(|usable| &usable.split)),
        })
    }

    fn plan_by(&self, policy: &Policy, workload: &Workload) -> Option<Plan> {
        Plan::compare(
            |workload| self.survey.candidates(&self.splits, workload),
            workload,
            policy,
        )
    }

    /// The candidate that the plan takes, and the choice in words.
    ///
    /// # Errors
    /// As [`Planner::plan`].
    pub(crate) fn choose(&self) -> Result<(Candidate, Chosen), TrainerError> {
        let plan = self.plan()?;
        let Explanation { headline, layers, .. } = plan.explain(&self.layers, &self.modules);
        let reason = [Some(headline), layers].into_iter().flatten();
        let reason = reason.collect::<Vec<_>>().join("; ");
        let best = plan.chosen.candidate;
        let chosen = self.chosen(&best, reason);
        Ok((best, chosen))
    }

    /// The choice of `candidate`, for this `reason`.
    pub(crate) fn chosen(&self, candidate: &Candidate, reason: String) -> Chosen {
        Chosen {
            split: candidate.split.clone(),
            encoding: candidate.encoding,
            bytes_per_sample: candidate.bytes_per_sample,
            reason,
            flow: self.flow(candidate),
        }
    }

    /// `split` in the encoding that suits the objective best.
    pub(crate) fn candidate(&self, split: &Split) -> Option<Candidate> {
        let mut candidates = self.survey.candidates(&self.splits, &self.workload).into_iter();
        candidates.find(|candidate| candidate.split == *split)
    }

    /// What the best split is worth over links of any speed, by what is known now.
    pub(crate) fn over_links(&self) -> Vec<LinkPoint> {
        over_links(&self.workload, |workload| self.plan_by(&Policy::Auto, workload))
    }

    /// How to ask for batches at `candidate`. A request travels within a second, so that a lost one costs little and the next batch's first
    /// rows come early; it is a whole number of grants. As many batches are extracted ahead as the stages before the trainer work on at once, and one more that
    /// waits; as many requests are open as cover them.
    pub(crate) fn flow(&self, candidate: &Candidate) -> Flow {
        let (batch, most) = (self.workload.batch.max(1), self.most);
        let second = self.workload.link_bytes_per_second / candidate.bytes_per_sample.max(1.0);
        let smallest = self
            .grant
            .unwrap_or(SMALLEST_REQUEST)
            .min(most.request_samples)
            .min(batch)
            .max(1);
        let largest = most.request_samples.min(batch).max(smallest);
        let request_samples = in_whole_grants((second as usize).clamp(smallest, largest), self.grant);
        let [first, _] = self.workload.passes();
        let stages = candidate.stages.fetching(first.fetched);
        let steady = candidate.predict(&self.workload).steady_seconds;
        let before_trainer = stages.host_seconds + stages.link_seconds;
        let at_work = (before_trainer / steady.max(f64::MIN_POSITIVE)).ceil() as usize;
        let ahead = (at_work + 1).clamp(1, most.ahead.max(1));
        let window = (batch.div_ceil(request_samples) * (ahead + 1)).clamp(1, most.window.max(1));
        Flow {
            request_samples,
            window,
            ahead,
        }
    }
}
