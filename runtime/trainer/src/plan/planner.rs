use super::{
    Candidate, ChosenSplit, Explanation, LayersLocation, LinkPoint, Modules, Plan, Survey, UsableSplit,
    Workload, over_links, policy,
};
use crate::host_loads::round_to_grants;
use crate::{FetchLimits, Policy, TrainerError};
use frostline_client::Link;
use frostline_wire::Split;

/// Smaller requests would leave the host's lanes with inefficiently small batches.
const SMALLEST_REQUEST: usize = 8;

/// Inputs of the plan for a job.
pub(crate) struct Planner {
    pub(crate) survey: Survey,
    pub(crate) splits: Vec<UsableSplit>,
    pub(crate) workload: Workload,
    /// Measured link. For several hosts, this is the sum of the links.
    pub(crate) link: Link,
    pub(crate) policy: Policy,
    /// Upper limits for requests, set by the job.
    pub(crate) flow_limits: FetchLimits,
    /// Samples per guest call, or `None` if the hosts do not report it.
    pub(crate) grant: Option<usize>,
    /// Location of the frozen layers.
    pub(crate) layers: LayersLocation,
    /// Module names of the cuts.
    pub(crate) modules: Modules,
}

impl Planner {
    /// Computes the plan from the current measurements.
    ///
    /// # Errors
    /// Returns [`TrainerError::Policy`] if no split fits the policy.
    pub(crate) fn plan(&self) -> Result<Plan, TrainerError> {
        let plan = self.plan_by(&self.policy, &self.workload);
        plan.ok_or_else(|| TrainerError::Policy {
            policy: self.policy.to_string(),
            why: policy::no_match_reason(&self.policy, self.splits.iter().map(|usable| &usable.split)),
        })
    }

    fn plan_by(&self, policy: &Policy, workload: &Workload) -> Option<Plan> {
        Plan::compare(
            |workload| self.survey.candidates(&self.splits, workload),
            workload,
            policy,
        )
    }

    /// Returns the chosen candidate and the choice with the reason in words.
    ///
    /// # Errors
    /// Returns the same errors as [`Planner::plan`].
    pub(crate) fn choose(&self) -> Result<(Candidate, ChosenSplit), TrainerError> {
        let plan = self.plan()?;
        let Explanation { headline, layers, .. } = plan.explain(&self.layers, &self.modules);
        let reason = [Some(headline), layers].into_iter().flatten();
        let reason = reason.collect::<Vec<_>>().join("; ");
        let best = plan.chosen.candidate;
        let chosen = self.chosen(&best, reason);
        Ok((best, chosen))
    }

    pub(crate) fn chosen(&self, candidate: &Candidate, reason: String) -> ChosenSplit {
        ChosenSplit {
            split: candidate.split.clone(),
            encoding: candidate.encoding,
            bytes_per_sample: candidate.bytes_per_sample,
            reason,
            flow: self.flow(candidate),
        }
    }

    /// Returns the candidate for `split` in the encoding that minimizes the objective, or `None` if the split
    /// is unusable or was not measured.
    pub(crate) fn candidate(&self, split: &Split) -> Option<Candidate> {
        let mut candidates = self.survey.candidates(&self.splits, &self.workload).into_iter();
        candidates.find(|candidate| candidate.split == *split)
    }

    /// Computes the speed-up of the best split over `none` for a range of link rates.
    pub(crate) fn over_links(&self) -> Vec<LinkPoint> {
        over_links(&self.workload, |workload| self.plan_by(&Policy::Auto, workload))
    }

    /// Computes the request size, window and prefetch for batches at `candidate`. The settings of the job are
    /// upper limits.
    ///
    /// - A request holds the samples that the link transfers in a second, rounded down to whole grants. The
    ///   minimum is a grant, or [`SMALLEST_REQUEST`] if the hosts do not report it, and the maximum is the
    ///   batch. This makes a lost request cheap to repeat and delivers the first activations of the next
    ///   batch early.
    /// - The prefetch covers the batches that host and link work on at the same time, and an additional batch
    ///   that waits.
    /// - The window covers the requests of the current batch and of the prefetched batches.
    pub(crate) fn flow(&self, candidate: &Candidate) -> FetchLimits {
        let batch = self.workload.batch.max(1);
        let most = self.flow_limits;
        let second = self.workload.link_bytes_per_second / candidate.bytes_per_sample.max(1.0);
        let smallest = self
            .grant
            .unwrap_or(SMALLEST_REQUEST)
            .min(most.request_samples)
            .min(batch)
            .max(1);
        let largest = most.request_samples.min(batch).max(smallest);
        let request_samples = round_to_grants((second as usize).clamp(smallest, largest), self.grant);
        let [first, _] = self.workload.passes();
        let stages = candidate.stages.fetching(first.fetched);
        let steady = candidate.predict(&self.workload).steady_seconds;
        let before_trainer = stages.host_seconds + stages.link_seconds;
        let at_work = (before_trainer / steady.max(f64::MIN_POSITIVE)).ceil() as usize;
        let ahead = (at_work + 1).clamp(1, most.ahead.max(1));
        let window = (batch.div_ceil(request_samples) * (ahead + 1)).clamp(1, most.window.max(1));
        FetchLimits {
            request_samples,
            window,
            ahead,
        }
    }
}
