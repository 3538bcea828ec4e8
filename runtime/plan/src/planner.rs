use crate::links::over_links;
use crate::policy::no_match_reason;
use crate::{
    Candidate, ChosenSplit, Explanation, LayersLocation, Modules, Plan, PlanError, Summary, Survey,
    UsableSplit, Workload,
};
use frostline_job::{FetchLimits, LinkPoint, Policy};
use frostline_wire::{Link, Split};

/// Smaller requests would leave the host's lanes with inefficiently small batches.
const SMALLEST_REQUEST: usize = 8;

/// Inputs of the plan for a job.
pub struct Planner {
    /// The measurements.
    pub survey: Survey,
    /// Splits to choose from, in order of execution.
    pub splits: Vec<UsableSplit>,
    /// The job.
    pub workload: Workload,
    /// Measured link. For several hosts, this is the sum of the links.
    pub link: Link,
    /// Rule for the choice.
    pub policy: Policy,
    /// Upper limits for requests, set by the job.
    pub flow_limits: FetchLimits,
    /// Samples per guest call, or `None` if the hosts do not report it.
    pub grant: Option<usize>,
    /// Location of the frozen layers.
    pub layers: LayersLocation,
    /// Module names of the cuts.
    pub modules: Modules,
}

impl Planner {
    /// Computes the plan from the current measurements.
    ///
    /// # Errors
    /// Returns [`PlanError::Policy`] if no split fits the policy.
    pub fn plan(&self) -> Result<Plan, PlanError> {
        let plan = self.plan_by(&self.policy, &self.workload);
        plan.ok_or_else(|| PlanError::Policy {
            policy: self.policy.to_string(),
            why: no_match_reason(&self.policy, self.splits.iter().map(|usable| &usable.split)),
        })
    }

    fn plan_by(&self, policy: &Policy, workload: &Workload) -> Option<Plan> {
        Plan::compare(
            |workload| self.survey.candidates(&self.splits, workload),
            workload,
            policy,
        )
    }

    /// Returns a plan of this planner for scripts.
    pub fn summary(&self, plan: &Plan) -> Summary {
        plan.summary(self.flow(&plan.chosen.candidate), &self.layers)
    }

    /// Returns a plan of this planner for people.
    pub fn explain(&self, plan: &Plan) -> Explanation {
        plan.explain(&self.layers, &self.modules)
    }

    /// Returns the chosen candidate and the choice with the reason in words.
    ///
    /// # Errors
    /// Returns the same errors as [`Planner::plan`].
    pub fn choose(&self) -> Result<(Candidate, ChosenSplit), PlanError> {
        let plan = self.plan()?;
        let Explanation { headline, layers, .. } = self.explain(&plan);
        let reason = [Some(headline), layers].into_iter().flatten();
        let reason = reason.collect::<Vec<_>>().join("; ");
        let best = plan.chosen.candidate;
        let chosen = self.chosen(&best, reason);
        Ok((best, chosen))
    }

    /// Returns `candidate` as the chosen split, with this `reason` and its request sizes.
    pub fn chosen(&self, candidate: &Candidate, reason: String) -> ChosenSplit {
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
    pub fn candidate(&self, split: &Split) -> Option<Candidate> {
        let mut candidates = self.survey.candidates(&self.splits, &self.workload).into_iter();
        candidates.find(|candidate| candidate.split == *split)
    }

    /// Returns the planner for a job without frozen layers on the hosts, or `None` if they are worth sending:
    /// sending `layers` bytes would take longer than the whole job without them. The split `input` only needs
    /// the layers up to the first cut, which have `first` bytes.
    pub fn without_layers(mut self, layers: u64, first: u64) -> Option<Self> {
        self.splits
            .retain(|usable| !matches!(usable.split, Split::Cut(_)));
        let workload = &self.workload;
        let mut candidates = self.survey.candidates(&self.splits, workload);
        for candidate in &mut candidates {
            if candidate.split == Split::Input {
                candidate.stages.upload_seconds = first as f64 / workload.link_bytes_per_second;
            }
        }
        let best = Plan::choose(candidates, workload, &self.policy)?.chosen;
        self.layers = LayersLocation::keep_on_trainer(layers, &best, workload)?;
        if best.candidate.split != Split::Input {
            self.splits.retain(|usable| usable.split == best.candidate.split);
        }
        Some(self)
    }

    /// Computes the speed-up of the best split over `none` for a range of link rates.
    pub fn over_links(&self) -> Vec<LinkPoint> {
        over_links(&self.workload, |workload| self.plan_by(&Policy::Auto, workload))
    }

    /// Computes the request size, window and prefetch for batches at `candidate`. The settings of the job are
    /// upper limits.
    ///
    /// - A request holds the samples that the link transfers in a second, rounded down to whole grants. The
    ///   minimum is a grant, or eight samples if the hosts do not report it, and the maximum is the
    ///   batch. This makes a lost request cheap to repeat and delivers the first activations of the next
    ///   batch early.
    /// - The prefetch covers the batches that host and link work on at the same time, and an additional batch
    ///   that waits.
    /// - The window covers the requests of the current batch and of the prefetched batches.
    pub fn flow(&self, candidate: &Candidate) -> FetchLimits {
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

/// Rounds `samples` down to a multiple of the grant size, unless this would be zero.
pub fn round_to_grants(samples: usize, grant: Option<usize>) -> usize {
    let rest = samples.checked_rem(grant.unwrap_or(1)).unwrap_or(0);
    if rest < samples { samples - rest } else { samples }
}

#[cfg(test)]
mod tests {
    use super::round_to_grants;

    #[test]
    fn a_request_is_whole_grants_where_it_holds_one() {
        for (samples, grant, whole) in [
            (32, Some(16), 32),
            (40, Some(16), 32),
            (8, Some(16), 8),
            (40, None, 40),
            (5, Some(0), 5),
        ] {
            assert_eq!(round_to_grants(samples, grant), whole, "{samples} {grant:?}");
        }
    }
}
