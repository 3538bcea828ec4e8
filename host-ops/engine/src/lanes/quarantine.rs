use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Crashes before a model is quarantined. A single crash can be a coincidence, for example if the system was
/// out of memory or an operator killed the process. A third crash would cost other tenants another restart
/// without new information.
pub(super) const CRASHES: u32 = 2;

/// Maximum number of recorded models, and of recorded tenants. The oldest record is dropped first.
const RECORDS: usize = 1024;

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
    /// Crashes by tenant and model.
    cases: Records,
    /// Lost lanes by tenant, without the model.
    losses: Records,
}

/// Records, sorted by time, latest last.
type Records = VecDeque<Record>;

/// Events of a tenant and a model.
#[derive(Debug)]
struct Record {
    tenant: String,
    model: String,
    count: u32,
    /// End of the process in the latest event.
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
        count(&mut self.cases, now, tenant, model, how);
    }

    /// Counts a lane that was lost because of `tenant`, independent of the model.
    pub(super) fn count_loss(&mut self, now: Instant, tenant: &str) {
        self.forget(now);
        count(&mut self.losses, now, tenant, "", "");
    }

    /// Returns the remaining time for which batches of `tenant` are refused.
    pub(super) fn pause(&mut self, now: Instant, tenant: &str) -> Option<Duration> {
        self.forget(now);
        let losses = find(&self.losses, tenant, "")?;
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
        let case = find(&self.cases, tenant, model).filter(|case| case.count >= CRASHES)?;
        Some(Quarantined {
            crashes: case.count,
            how: case.how.clone(),
            left: self.time.saturating_sub(now.saturating_duration_since(case.at)),
        })
    }

    fn forget(&mut self, now: Instant) {
        for records in [&mut self.cases, &mut self.losses] {
            records.retain(|record| now.saturating_duration_since(record.at) < self.time);
        }
    }
}

fn find<'a>(records: &'a Records, tenant: &str, model: &str) -> Option<&'a Record> {
    let mut records = records.iter();
    records.find(|record| record.tenant == tenant && record.model == model)
}

/// Counts an event at `now`.
fn count(records: &mut Records, now: Instant, tenant: &str, model: &str, how: &str) {
    let mut known = records.iter();
    let before = known.position(|record| record.tenant == tenant && record.model == model);
    let before = before.and_then(|index| records.remove(index));
    if records.len() >= RECORDS {
        records.pop_front();
    }
    records.push_back(Record {
        tenant: tenant.to_owned(),
        model: model.to_owned(),
        count: before.map_or(0, |record| record.count).saturating_add(1),
        how: how.to_owned(),
        at: now,
    });
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
        for index in 0..2 * RECORDS {
            quarantine.record_crash(now, "a", &index.to_string(), "");
        }
        assert_eq!(quarantine.cases.len(), RECORDS);
        for index in 0..2 * RECORDS {
            quarantine.count_loss(now, &index.to_string());
        }
        assert_eq!(quarantine.losses.len(), RECORDS);
    }
}
