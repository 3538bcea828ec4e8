//! Which of several candidates that are too near each other to tell which is faster.

use super::scenario::Scenario;
use super::{Ranked, Workload};

/// Predictions are this far off at the ninth decile (4.5 % in the median): candidates within it of the least may be the fastest.
const NEAR: f64 = 1.11;

/// A tenth worse than measured, about as far as predictions err; one at a time, since what errs at once in all candidates chooses none.
const SCENARIOS: [Scenario; 5] = [
    Scenario::MEASURED,
    Scenario {
        host: 1.1,
        ..Scenario::MEASURED
    },
    Scenario {
        link: 1.1,
        ..Scenario::MEASURED
    },
    Scenario {
        trainer: 1.1,
        ..Scenario::MEASURED
    },
    Scenario {
        apart: 0.1,
        ..Scenario::MEASURED
    },
];

/// By candidate, what share of the best candidate's time it loses in the worst of the scenarios; infinite for what is not near the
/// least.
pub(super) fn regrets(candidates: &[Ranked], workload: &Workload) -> Vec<f64> {
    let total = |ranked: &Ranked| ranked.prediction.total_seconds;
    let least = candidates.iter().map(total).fold(f64::INFINITY, f64::min);
    let mut regrets: Vec<f64> = candidates
        .iter()
        .map(|ranked| {
            if total(ranked) <= NEAR * least {
                0.0
            } else {
                f64::INFINITY
            }
        })
        .collect();
    for scenario in &SCENARIOS {
        let took = |ranked: &Ranked| ranked.candidate.predict_in(workload, scenario).total_seconds;
        let took: Vec<f64> = candidates.iter().map(took).collect();
        let best = took.iter().copied().fold(f64::INFINITY, f64::min);
        for (regret, took) in regrets.iter_mut().zip(took) {
            *regret = regret.max(took / best.max(f64::MIN_POSITIVE) - 1.0);
        }
    }
    regrets
}
