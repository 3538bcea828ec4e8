use super::policy::choose;
use super::{Candidate, Ranked, Workload};
use crate::{Flow, Policy};
use frostline_job::Objective;
use frostline_wire::{Encoding, Split};

/// A choice among candidates.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// All candidates, in the order of execution.
    pub(crate) candidates: Vec<Ranked>,
    /// One of them.
    pub(crate) chosen: Ranked,
    /// Where the plan minimizes the cost: what takes the least time.
    pub(crate) shortest: Option<Ranked>,
    /// The rule that chose it.
    pub(crate) policy: Policy,
    /// The job it is for.
    pub(crate) workload: Workload,
}

impl Plan {
    /// Predicts every candidate and chooses by `policy`. `None` without candidates, or when the policy names one that is not there.
    ///
    /// `candidates` are in the order of execution, the freeze cut last.
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

    /// [`Plan::choose`] among the `candidates` of a workload, which depend on what it minimizes, with the plan for time beside one for cost.
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

/// The split a job uses.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chosen {
    pub(crate) split: Split,
    pub(crate) encoding: Encoding,
    pub(crate) bytes_per_sample: f64,
    pub(crate) reason: String,
    pub(crate) flow: Flow,
}
