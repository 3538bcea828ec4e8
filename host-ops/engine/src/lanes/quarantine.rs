use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Crashes after which a model is not run any more. The first may be chance (the system was out of memory, somebody
/// ended the process); a third would cost the neighbours on the lane a third restart and tell nothing new.
pub(super) const CRASHES: u32 = 2;

/// Models under suspicion, at most. A stranger who has more of them crash only gets the oldest forgotten.
const CASES: usize = 1024;

/// Which models crashed the engine, for whom, and how often. A model that two tenants share is judged for each alone, as
/// it may be the data of one that makes it crash.
#[derive(Debug)]
pub(super) struct Quarantine {
    time: Duration,
    /// The latest at the end.
    cases: VecDeque<Case>,
}

#[derive(Debug, Clone)]
struct Case {
    tenant: String,
    model: String,
    crashes: u32,
    how: String,
    at: Instant,
}

/// A model that is not run any more, for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Quarantined {
    pub(super) crashes: u32,
    /// How the process ended the last time.
    pub(super) how: String,
    /// How long it will not be run.
    pub(super) left: Duration,
}

impl Quarantine {
    /// Crashes are held against a model for `time` after the latest.
    pub(super) fn new(time: Duration) -> Self {
        Self {
            time,
            cases: VecDeque::new(),
        }
    }

    /// Notes that the process crashed while it ran `model` for `tenant`, and `how` it ended.
    pub(super) fn note(&mut self, now: Instant, tenant: &str, model: &str, how: &str) {
        self.forget(now);
        let same = |case: &Case| case.tenant == tenant && case.model == model;
        let before = self.cases.iter().position(same);
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

    /// Whether `model` must not be run for `tenant`.
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn two_crashes_put_a_model_away_for_its_tenant_alone() {
        let (mut quarantine, now) = (Quarantine::new(HOUR), Instant::now());
        quarantine.note(now, "a", "m", "signal: 8");
        assert_eq!(quarantine.check(now, "a", "m"), None);
        quarantine.note(now, "a", "m", "signal: 11");
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
    fn crashes_are_forgotten_in_time() {
        let (mut quarantine, start) = (Quarantine::new(HOUR), Instant::now());
        quarantine.note(start, "a", "m", "");
        quarantine.note(start + HOUR / 2, "a", "m", "");
        let left = quarantine.check(start + HOUR, "a", "m").map(|case| case.left);
        assert_eq!(left, Some(HOUR / 2));
        assert_eq!(quarantine.check(start + HOUR * 3 / 2, "a", "m"), None);
        quarantine.note(start + HOUR * 3 / 2, "a", "m", "");
        assert_eq!(quarantine.check(start + HOUR * 3 / 2, "a", "m"), None);
    }

    #[test]
    fn strangers_cannot_make_it_grow() {
        let (mut quarantine, now) = (Quarantine::new(HOUR), Instant::now());
        for index in 0..2 * CASES {
            quarantine.note(now, "a", &index.to_string(), "");
        }
        assert_eq!(quarantine.cases.len(), CASES);
    }
}
