use super::{Candidate, Policy, Ranked, Workload};
use crate::Flow;
use frostline_wire::{Encoding, Split};

/// A choice among candidates.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// All candidates, in the order of execution.
    pub(crate) candidates: Vec<Ranked>,
    /// The index of the chosen one.
    pub(crate) chosen: usize,
    /// The rule that chose.
    pub(crate) policy: Policy,
}

impl Plan {
    /// Predicts every candidate and chooses by `policy`. `None` without candidates, or when the policy names one that is not there.
    ///
    /// `candidates` are in the order of execution, the freeze cut last.
    pub(crate) fn choose(candidates: Vec<Candidate>, workload: &Workload, policy: &Policy) -> Option<Self> {
        let ranked: Vec<Ranked> = candidates
            .into_iter()
            .map(|candidate| Ranked {
                prediction: workload.predict(&candidate.stages),
                candidate,
            })
            .collect();
        let chosen = policy.choose(&ranked, workload)?;
        Some(Self {
            candidates: ranked,
            chosen,
            policy: policy.clone(),
        })
    }

    /// The chosen candidate.
    pub(crate) fn chosen(&self) -> Option<&Ranked> {
        self.candidates.get(self.chosen)
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
