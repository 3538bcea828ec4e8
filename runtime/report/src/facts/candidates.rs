//! Comparison of predicted and measured times.

use crate::run::{Candidate, Journal, Plan};

/// Number of the best candidates. Chosen and measured candidates are always included.
const SHOWN: usize = 12;

/// A candidate with the measured step time.
#[derive(Debug)]
pub(crate) struct CandidateComparison<'a> {
    pub(crate) candidate: &'a Candidate,
    pub(crate) chosen: bool,
    pub(crate) measured: Option<MeasuredSplit>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MeasuredSplit {
    /// Median time of a step, including the wait for the batch.
    pub(crate) seconds: f64,
    pub(crate) steps: usize,
}

/// Returns the candidates of `plan` by increasing job time: the best ones, the chosen one, and all with
/// measurements.
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
    // Steps do not record the encoding. A measurement is assigned to the chosen candidate of the split, or to
    // the best candidate if none was chosen.
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

/// Measures the steps at a split. Steps with cached features are faster and do not count.
fn measured_at(journal: &Journal, split: &str) -> Option<MeasuredSplit> {
    let steps = journal.steps.sampled().iter();
    let fetched = steps.filter(|step| !step.has_cached_features && journal.steps.split(step) == split);
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
