//! Speed-up of the best split for a range of link rates.

use crate::{Plan, Workload};
use frostline_job::LinkPoint;
use frostline_wire::Split;

/// Lowest link rate, 1 Mbit/s in bytes per second.
const SLOWEST: f64 = 125_000.0;
/// Number of link rates per power of ten and number of powers of ten.
const STEPS: u32 = 16;
const POWERS: u32 = 4;

/// Returns the split of the shortest job for link rates of 1 Mbit/s to 10 Gbit/s. `choose` computes the plan
/// for a rate. A rate is skipped if there is no plan or if `none` is not a candidate.
pub(crate) fn over_links(workload: &Workload, choose: impl Fn(&Workload) -> Option<Plan>) -> Vec<LinkPoint> {
    let points = (0..=STEPS * POWERS).map(|step| {
        let over = Workload {
            link_bytes_per_second: (SLOWEST * 10_f64.powf(f64::from(step) / f64::from(STEPS))),
            ..workload.minimizing_time()
        };
        let plan = choose(&over)?;
        let without = plan
            .candidates
            .iter()
            .find(|ranked| ranked.candidate.split == Split::None)?
            .prediction;
        let best = plan.chosen;
        Some(LinkPoint {
            bytes_per_second: over.link_bytes_per_second,
            split: best.candidate.split,
            speed_up: without.total_seconds / best.prediction.total_seconds.max(f64::MIN_POSITIVE),
        })
    });
    points.flatten().collect()
}
