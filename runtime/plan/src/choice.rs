use crate::candidate::Ranked;
use crate::policy::choose;
use crate::{Candidate, Workload};
use frostline_job::{FetchLimits, Objective, Policy};
use frostline_wire::{Encoding, Split};

/// Predictions for all candidates and the chosen candidate.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// All candidates in order of execution.
    pub(crate) candidates: Vec<Ranked>,
    /// The chosen candidate.
    pub(crate) chosen: Ranked,
    /// The fastest candidate, if the plan minimizes cost.
    pub(crate) shortest: Option<Ranked>,
    /// The policy that chose the split.
    pub(crate) policy: Policy,
    /// The planned job.
    pub(crate) workload: Workload,
}

impl Plan {
    /// Predicts the time of every candidate and chooses according to `policy`. Returns `None` if there are no
    /// candidates or if the split in the policy is not a candidate.
    ///
    /// The candidates must be in order of execution, and the last candidate must be the freeze cut.
    pub(crate) fn choose(candidates: Vec<Candidate>, workload: &Workload, policy: &Policy) -> Option<Self> {
        let ranked: Vec<Ranked> = candidates
            .into_iter()
            .map(|candidate| Ranked {
                prediction: candidate.predict(workload),
                candidate,
            })
            .collect();
        Some(Self {
            chosen: ranked.get(choose(policy, &ranked, workload)?)?.clone(),
            candidates: ranked,
            shortest: None,
            policy: policy.clone(),
            workload: *workload,
        })
    }

    /// [`Plan::choose`] with candidates that depend on the workload's objective. If the objective is cost,
    /// the plan also contains the fastest candidate.
    pub(crate) fn compare(
        candidates: impl Fn(&Workload) -> Vec<Candidate>,
        workload: &Workload,
        policy: &Policy,
    ) -> Option<Self> {
        let plan = Self::choose(candidates(workload), workload, policy)?;
        if *policy != Policy::Auto || workload.cost.objective == Objective::Time {
            return Some(plan);
        }
        let for_time = workload.minimizing_time();
        let shortest = Self::choose(candidates(&for_time), &for_time, policy);
        Some(Self {
            shortest: shortest.map(|plan| plan.chosen),
            ..plan
        })
    }
}

/// The chosen split with the reason and the request sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct ChosenSplit {
    /// The split.
    pub split: Split,
    /// The encoding on the link.
    pub encoding: Encoding,
    /// Bytes per sample on the link.
    pub bytes_per_sample: f64,
    /// Explanation of the choice in a single line.
    pub reason: String,
    /// Request size, window and prefetch.
    pub flow: FetchLimits,
}
