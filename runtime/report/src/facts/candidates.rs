//! What a plan predicted beside what was measured.

use crate::run::{Candidate, Journal, Plan};

/// Candidates that are shown beside those that were chosen or measured.
const SHOWN: usize = 12;

/// A candidate, and the steps that were divided as it says.
#[derive(Debug)]
pub(crate) struct CandidateComparison<'a> {
    pub(crate) candidate: &'a Candidate,
    pub(crate) chosen: bool,
    pub(crate) measured: Option<MeasuredSplit>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MeasuredSplit {
    /// Median of what a step waited and computed.
    pub(crate) seconds: f64,
    pub(crate) steps: usize,
}

/// The candidates of `plan`, the shortest job first: the best, the chosen one, and those that were measured.
pub(crate) fn compare_candidates<'a>(plan: &'a Plan, journal: &Journal) -> Vec<CandidateComparison<'a>> {
    let mut ranked: Vec<&Candidate> = plan.candidates.iter().collect();
    let cost = |candidate: &Candidate| {
        if candidate.total_seconds > 0.0 {
            candidate.total_seconds
        } else {
            candidate.iteration_seconds
        }
    };
    ranked.sort_by(|left, right| cost(left).total_cmp(&cost(right)));
    let measured: Vec<(&str, MeasuredSplit)> = journal
        .steps
        .splits()
        .iter()
        .filter_map(|split| Some((split.as_str(), measured_at(journal, split)?)))
        .collect();
    // A split is measured in one encoding: that of its best candidate, unless another was chosen.
    let mut taken = Vec::new();
    let mut rows: Vec<CandidateComparison> = Vec::new();
    for candidate in &ranked {
        let chosen = plan.chose(candidate);
        let is_best = !taken.contains(&candidate.split.as_str());
        let meant = if candidate.split == plan.split {
            chosen
        } else {
            is_best
        };
        taken.push(candidate.split.as_str());
        let found = measured
            .iter()
            .find(|(split, _)| meant && *split == candidate.split);
        rows.push(CandidateComparison {
            candidate,
            chosen,
            measured: found.map(|(_, measured)| *measured),
        });
    }
    let mut place = 0;
    rows.retain(|row| {
        place += 1;
        place <= SHOWN || row.chosen || row.measured.is_some()
    });
    rows
}

/// Steps count whose rows were all fetched: with kept ones an iteration is another one.
fn measured_at(journal: &Journal, split: &str) -> Option<MeasuredSplit> {
    let steps = journal.steps.sampled().iter();
    let fetched = steps.filter(|step| !step.kept && journal.steps.split(step) == split);
    let mut times: Vec<f64> = fetched
        .map(|step| f64::from(step.waited) + f64::from(step.computed))
        .collect();
    times.sort_by(f64::total_cmp);
    let seconds = times.get(times.len() / 2).copied()?;
    Some(MeasuredSplit {
        seconds,
        steps: times.len(),
    })
}
