use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Crashes before a model is quarantined. A single crash can be a coincidence, for example if the system was
/// out of memory or an operator killed the process. A third crash would cost other tenants another restart
/// without new information.
pub(super) const CRASHES: u32 = 2;

/// Maximum number of recorded models. If a client crashes more, the oldest record is dropped.
const CASES: usize = 1024;

/// Maximum number of recorded tenants. The oldest record is dropped first.
const TENANTS: usize = 1024;

/// Divisors that compute a tenant's first and longest pause from the quarantine time. The pause doubles with
/// each further loss. For a quarantine of an hour they are 1 s and 15 minutes, which limits a tenant to about
/// 14 lanes per hour.
const FIRST_PAUSE: u32 = 3600;
const LONGEST_PAUSE: u32 = 4;

/// Records crashes by tenant and model.
///
/// Tenants that share a model are judged separately, because the crash may depend on a tenant's data. Lost
/// lanes are also counted over all models of a tenant, because the next model may differ by a single byte.
/// The tenant's pause grows with each loss.
#[derive(Debug)]
pub(super) struct Quarantine {
    time: Duration,
    /// Sorted by time, latest last.
    cases: VecDeque<Case>,
    /// Sorted by time, latest last.
    losses: VecDeque<Losses>,
}

/// Lanes lost because of a tenant's models.
#[derive(Debug)]
struct Losses {
    tenant: String,
    count: u32,
    at: Instant,
}

#[derive(Debug, Clone)]
struct Case {
    tenant: String,
    model: String,
    crashes: u32,
    how: String,
    at: Instant,
}

/// A quarantined model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Quarantined {
    pub(super) crashes: u32,
    /// End of the process in the latest crash.
    pub(super) how: String,
    /// Remaining time in quarantine.
    pub(super) left: Duration,
}

impl Quarantine {
    /// Creates a quarantine that remembers crashes for `time` after the latest.
    pub(super) fn new(time: Duration) -> Self {
        Self {
            time,
            cases: VecDeque::new(),
            losses: VecDeque::new(),
        }
    }

    /// Records that the process crashed while it ran `model` for `tenant`, and `how` it ended.
    pub(super) fn record_crash(&mut self, now: Instant, tenant: &str, model: &str, how: &str) {
        self.count_loss(now, tenant);
        let before = self
            .cases
            .iter()
            .position(|case| case.tenant == tenant && case.model == model);
        let before = before.and_then(|index| self.cases.remove(index));
        if self.cases.len() >= CASES {
            self.cases.pop_front();
        }
        self.cases.push_back(Case {
            tenant: tenant.to_owned(),
            model: model.to_owned(),
            crashes: before.map_or(0, |case| case.crashes).saturating_add(1),
            how: how.to_owned(),
            at: now,
        });
    }

    /// Counts a lane that was lost because of `tenant`, independent of the model.
    pub(super) fn count_loss(&mut self, now: Instant, tenant: &str) {
        self.forget(now);
        let before = self.losses.iter().position(|losses| losses.tenant == tenant);
        let before = before.and_then(|index| self.losses.remove(index));
        if self.losses.len() >= TENANTS {
            self.losses.pop_front();
        }
        self.losses.push_back(Losses {
            tenant: tenant.to_owned(),
            count: before.map_or(0, |losses| losses.count).saturating_add(1),
            at: now,
        });
    }

    /// Returns the remaining time for which batches of `tenant` are refused.
    pub(super) fn pause(&mut self, now: Instant, tenant: &str) -> Option<Duration> {
        self.forget(now);
        let losses = self.losses.iter().find(|losses| losses.tenant == tenant)?;
        let doubled = losses.count.checked_sub(CRASHES)?;
        let factor = 2_u32.saturating_pow(doubled);
        let pause = (self.time / FIRST_PAUSE).saturating_mul(factor);
        let pause = pause.min(self.time / LONGEST_PAUSE);
        let left = pause.checked_sub(now.saturating_duration_since(losses.at))?;
        (!left.is_zero()).then_some(left)
    }

    /// Returns the quarantine of `model` for `tenant`, if any.
    pub(super) fn check(&mut self, now: Instant, tenant: &str, model: &str) -> Option<Quarantined> {
        self.forget(now);
        let case = self
            .cases
            .iter()
            .find(|case| case.tenant == tenant && case.model == model);
        case.filter(|case| case.crashes >= CRASHES)
            .map(|case| Quarantined {
                crashes: case.crashes,
                how: case.how.clone(),
                left: self.time.saturating_sub(now.saturating_duration_since(case.at)),
            })
    }

    fn forget(&mut self, now: Instant) {
        let time = self.time;
        self.cases
            .retain(|case| now.saturating_duration_since(case.at) < time);
        self.losses
            .retain(|losses| now.saturating_duration_since(losses.at) < time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn two_crashes_put_a_model_away_for_its_tenant_alone() {
        let mut quarantine = Quarantine::new(HOUR);
        let now = Instant::now();
        quarantine.record_crash(now, "a", "m", "signal: 8");
        assert_eq!(quarantine.check(now, "a", "m"), None);
        quarantine.record_crash(now, "a", "m", "signal: 11");
        let expected = Quarantined {
            crashes: 2,
            how: "signal: 11".to_owned(),
            left: HOUR,
        };
        assert_eq!(quarantine.check(now, "a", "m"), Some(expected));
        assert_eq!(quarantine.check(now, "a", "other"), None);
        assert_eq!(quarantine.check(now, "b", "m"), None);
    }

    #[test]
    fn a_tenant_pauses_longer_with_every_lane_whatever_model_it_was() {
        let mut quarantine = Quarantine::new(HOUR);
        let start = Instant::now();
        quarantine.record_crash(start, "a", "0", "");
        assert_eq!(quarantine.pause(start, "a"), None, "may be a coincidence");
        let mut now = start;
        let mut lost = 1;
        while now < start + HOUR {
            now += quarantine.pause(now, "a").unwrap_or_default();
            quarantine.record_crash(now, "a", &lost.to_string(), "");
            lost += 1;
            assert_eq!(quarantine.check(now, "a", &lost.to_string()), None);
        }
        assert_eq!(lost, 15, "an hour of models that differ by a byte");
        assert_eq!(quarantine.pause(now, "a"), Some(HOUR / LONGEST_PAUSE));
        assert_eq!(quarantine.pause(now, "b"), None);
        assert_eq!(quarantine.pause(now + HOUR, "a"), None);
    }

    #[test]
    fn crashes_are_forgotten_in_time() {
        let mut quarantine = Quarantine::new(HOUR);
        let start = Instant::now();
        quarantine.record_crash(start, "a", "m", "");
        quarantine.record_crash(start + HOUR / 2, "a", "m", "");
        let left = quarantine.check(start + HOUR, "a", "m").map(|case| case.left);
        assert_eq!(left, Some(HOUR / 2));
        assert_eq!(quarantine.check(start + HOUR * 3 / 2, "a", "m"), None);
        quarantine.record_crash(start + HOUR * 3 / 2, "a", "m", "");
        assert_eq!(quarantine.check(start + HOUR * 3 / 2, "a", "m"), None);
    }

    #[test]
    fn the_number_of_records_is_limited() {
        let mut quarantine = Quarantine::new(HOUR);
        let now = Instant::now();
        for index in 0..2 * CASES {
            quarantine.record_crash(now, "a", &index.to_string(), "");
        }
        assert_eq!(quarantine.cases.len(), CASES);
        for index in 0..2 * TENANTS {
            quarantine.count_loss(now, &index.to_string());
        }
        assert_eq!(quarantine.losses.len(), TENANTS);
    }
}
