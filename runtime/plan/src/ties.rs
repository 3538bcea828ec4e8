//! Choice between candidates with predictions that are too close to be reliable.

use crate::Workload;
use crate::candidate::Ranked;
use crate::scenario::Scenario;

/// One plus the prediction error at the ninth decile, which is 11 % (the median is 4.5 %). Any candidate
/// within this factor of the minimum might be the fastest.
const NEAR: f64 = 1.11;

/// Each scenario makes a single tier 10 % worse, which is approximately the prediction error. Scenarios are
/// not combined, because an error that affects all candidates equally does not change the choice.
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
        not_overlapping: 0.1,
        ..Scenario::MEASURED
    },
];

/// Returns the worst-case loss per candidate: the relative excess over the best candidate, maximized over the
/// scenarios. This is infinite for candidates that are not close to the minimum.
pub(crate) fn regrets(candidates: &[Ranked], workload: &Workload) -> Vec<f64> {
    let totals = candidates.iter().map(|ranked| ranked.prediction.total_seconds);
    let least = totals.clone().fold(f64::INFINITY, f64::min);
    let mut regrets: Vec<f64> = totals
        .map(|total| if total <= NEAR * least { 0.0 } else { f64::INFINITY })
        .collect();
    for scenario in &SCENARIOS {
        let took: Vec<f64> = candidates
            .iter()
            .map(|ranked| ranked.candidate.predict_in(workload, scenario).total_seconds)
            .collect();
        let best = took.iter().copied().fold(f64::INFINITY, f64::min);
        for (regret, took) in regrets.iter_mut().zip(took) {
            *regret = regret.max(took / best.max(f64::MIN_POSITIVE) - 1.0);
        }
    }
    regrets
}
