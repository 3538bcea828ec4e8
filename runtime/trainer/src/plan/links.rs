//! What dividing the network is worth over links of any speed.

use super::{Plan, Ranked, Workload};
use frostline_wire::Split;

/// The slowest link that is looked at, 1 Mbit/s, in bytes per second.
const SLOWEST: f64 = 125_000.0;
/// Links for each power of ten, and powers of ten: up to 10 Gbit/s.
const STEPS: u32 = 16;
const POWERS: u32 = 4;

/// The best split over a link, against the split `none`.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkPoint {
    /// What the link moves.
    pub bytes_per_second: f64,
    /// The best split.
    pub split: Split,
    /// How many times as long the job takes with `none`.
    pub speed_up: f64,
}

/// The split of the shortest job over links of 1 Mbit/s to 10 Gbit/s as `choose` finds it; nothing where `none` is not among the candidates.
pub(crate) fn over_links(workload: &Workload, choose: impl Fn(&Workload) -> Option<Plan>) -> Vec<LinkPoint> {
    let rate = |step: u32| SLOWEST * 10_f64.powf(f64::from(step) / f64::from(STEPS));
    let point = |step: u32| {
        let over = Workload {
            link_bytes_per_second: rate(step),
            ..workload.minimizing_time()
        };
        let plan = choose(&over)?;
        let is_none = |ranked: &&Ranked| ranked.candidate.split == Split::None;
        let without = plan.candidates.iter().find(is_none)?.prediction;
        let best = plan.chosen;
        Some(LinkPoint {
            bytes_per_second: over.link_bytes_per_second,
            split: best.candidate.split,
            speed_up: without.total_seconds / best.prediction.total_seconds.max(f64::MIN_POSITIVE),
        })
    };
    (0..=STEPS * POWERS).filter_map(point).collect()
}
