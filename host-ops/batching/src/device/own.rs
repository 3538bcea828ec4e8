//! Rates of stages by tenant. A tenant only learns figures of its own rows, because those of other tenants
//! would show which networks they run.

use super::rate::Rate;
use super::recent::TENANTS;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Maximum number of stages per tenant. A job uses a single stage of a host at a time, and re-planning moves
/// it between a few cuts.
const STAGES: usize = 8;

/// Rate of a stage, measured with rows of a single tenant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OwnRate {
    /// Seconds per row in an efficient batch.
    pub seconds_per_row: f64,
    /// Efficient batch: the smallest measured number of rows with a rate within the tolerance of the best
    /// rate.
    pub efficient_batch: usize,
}

/// Rates of all tenants, bounded by the number of tenants and of stages per tenant.
#[derive(Debug)]
pub(super) struct OwnRates<S> {
    tenants: BTreeMap<Arc<str>, TenantRates<S>>,
    notes: u64,
}

#[derive(Debug)]
struct TenantRates<S> {
    /// The most recently executed stage is last.
    stages: VecDeque<(S, Rate)>,
    last_note: u64,
}

impl<S: Clone + Eq> OwnRates<S> {
    pub(super) fn new() -> Self {
        Self {
            tenants: BTreeMap::new(),
            notes: 0,
        }
    }

    /// Returns the rate of a stage for rows of `tenant`, which becomes the latest one. Drops the oldest rates
    /// beyond the limits.
    pub(super) fn rate_mut(&mut self, tenant: &Arc<str>, stage: &S) -> Option<&mut Rate> {
        if self.tenants.len() >= TENANTS && !self.tenants.contains_key(tenant) {
            let oldest = self.tenants.iter().min_by_key(|(_, rates)| rates.last_note);
            let oldest = oldest.map(|(tenant, _)| Arc::clone(tenant));
            oldest.and_then(|oldest| self.tenants.remove(&oldest));
        }
        self.notes += 1;
        let rates = self.tenants.entry(Arc::clone(tenant));
        let rates = rates.or_insert_with(|| TenantRates {
            stages: VecDeque::new(),
            last_note: 0,
        });
        rates.last_note = self.notes;
        let known = rates.stages.iter().position(|(known, _)| known == stage);
        let known = known.and_then(|place| rates.stages.remove(place));
        let latest = known.unwrap_or_else(|| (stage.clone(), Rate::default()));
        if rates.stages.len() >= STAGES {
            rates.stages.pop_front();
        }
        rates.stages.push_back(latest);
        rates.stages.back_mut().map(|(_, rate)| rate)
    }

    /// Returns the rates of stages that executed rows of `tenant`.
    pub(super) fn rates_of(&self, tenant: &str) -> impl Iterator<Item = (&S, OwnRate)> {
        let stages = self.tenants.get(tenant).into_iter();
        stages
            .flat_map(|rates| &rates.stages)
            .filter_map(|(stage, rate)| {
                let efficient_batch = rate.efficient_batch();
                let seconds_per_row = rate.per_row(efficient_batch)?;
                Some((
                    stage,
                    OwnRate {
                        seconds_per_row,
                        efficient_batch,
                    },
                ))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn tenants_and_stages_are_bounded_and_the_latest_are_known() {
        let mut rates = OwnRates::new();
        let name = |number: usize| Arc::from(format!("tenant-{number}"));
        for number in 0..=TENANTS {
            rates
                .rate_mut(&name(number), &0)
                .unwrap()
                .note(1, Duration::from_secs(1));
        }
        assert_eq!(rates.tenants.len(), TENANTS);
        assert_eq!(rates.rates_of("tenant-0").count(), 0);
        for stage in 0..=STAGES {
            rates
                .rate_mut(&name(1), &stage)
                .unwrap()
                .note(1, Duration::from_secs(1));
        }
        let known: Vec<usize> = rates.rates_of("tenant-1").map(|(stage, _)| *stage).collect();
        assert_eq!(known, (1..=STAGES).collect::<Vec<_>>());
    }

    #[test]
    fn a_tenant_sees_the_rate_of_its_own_rows() {
        let mut rates = OwnRates::new();
        let [a, b] = ["a", "b"].map(Arc::from);
        for _ in 0..3 {
            rates.rate_mut(&a, &0).unwrap().note(4, Duration::from_secs(4));
            rates.rate_mut(&b, &0).unwrap().note(16, Duration::from_secs(8));
        }
        let own = |tenant| rates.rates_of(tenant).map(|(_, rate)| rate).next();
        let expected = |seconds_per_row, efficient_batch| {
            Some(OwnRate {
                seconds_per_row,
                efficient_batch,
            })
        };
        assert_eq!(own("a"), expected(1.0, 4));
        assert_eq!(own("b"), expected(0.5, 16));
        assert_eq!(own("c"), None);
    }
}
