use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Crashes after which a model is not run any more. The first may be chance (the system was out of memory, somebody
/// ended the process); a third would cost the neighbours on the lane a third restart and tell nothing new.
pub(super) const CRASHES: u32 = 2;

/// Crashes of a tenant, with whatever models, before it has to pause: one changed byte makes another model.
const TENANT_CRASHES: u32 = 2 * CRASHES;

/// The first pause of a tenant; each further crash doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Models and tenants under suspicion, at most of each. Who has more models crash only gets the oldest forgotten, not its pause.
const CASES: usize = 1024;

/// Which models crashed the engine, for whom, and how often. A model that two tenants share is judged for each alone, as
/// it may be the data of one that makes it crash.
#[derive(Debug)]
pub(super) struct Quarantine {
    time: Duration,
    /// The latest at the end.
    models: VecDeque<Case>,
    /// As `models`, of all that a tenant ran.
    tenants: VecDeque<Case>,
}

#[derive(Debug, Clone)]
struct Case {
    tenant: String,
    /// `None`: all of the tenant's.
    model: Option<String>,
    crashes: u32,
    how: String,
    at: Instant,
}

/// What is not run for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Quarantined {
    pub(super) of: Scope,
    pub(super) crashes: u32,
    /// How the process ended the last time.
    pub(super) how: String,
    /// How long it is not run.
    pub(super) left: Duration,
}

/// What a quarantine holds for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// One model of a tenant.
    Model,
    /// Whatever the tenant runs.
    Tenant,
}

impl Quarantine {
    /// Crashes are held against a model and its tenant for `time` after the latest.
    pub(super) fn new(time: Duration) -> Self {
        Self {
            time,
            models: VecDeque::new(),
            tenants: VecDeque::new(),
        }
    }

    /// Notes that the process crashed in a run for `tenant`, and `how` it ended. `model` is `None` where several rows ran together, any of
    /// which may be at fault.
    pub(super) fn note(&mut self, now: Instant, tenant: &str, model: Option<&str>, how: &str) {
        self.forget(now);
        if model.is_some() {
            count(&mut self.models, now, tenant, model, how);
        }
        count(&mut self.tenants, now, tenant, None, how);
    }

    /// Whether `model` must not be run for `tenant`.
    pub(super) fn check(&mut self, now: Instant, tenant: &str, model: &str) -> Option<Quarantined> {
        self.forget(now);
        let time = self.time;
        let held = |case: &Case, of, pause: Duration| {
            let left = pause.saturating_sub(now.saturating_duration_since(case.at));
            (!left.is_zero()).then(|| Quarantined {
                of,
                crashes: case.crashes,
                how: case.how.clone(),
                left,
            })
        };
        let same = |case: &&Case| case.tenant == tenant && case.model.as_deref() == Some(model);
        let case = self
            .models
            .iter()
            .find(same)
            .filter(|case| case.crashes >= CRASHES);
        let of_model = case.and_then(|case| held(case, Scope::Model, time));
        of_model.or_else(|| {
            let case = self.tenants.iter().find(|case| case.tenant == tenant)?;
            let doublings = case.crashes.checked_sub(TENANT_CRASHES + 1)?;
            let pause = FIRST_PAUSE.saturating_mul(1 << doublings.min(16)).min(time);
            held(case, Scope::Tenant, pause)
        })
    }

    fn forget(&mut self, now: Instant) {
        let time = self.time;
        for cases in [&mut self.models, &mut self.tenants] {
            cases.retain(|case| now.saturating_duration_since(case.at) < time);
        }
    }
}

fn count(cases: &mut VecDeque<Case>, now: Instant, tenant: &str, model: Option<&str>, how: &str) {
    let same = |case: &Case| case.tenant == tenant && case.model.as_deref() == model;
    let before = cases.iter().position(same);
    let before = before.and_then(|index| cases.remove(index));
    if cases.len() >= CASES {
        cases.pop_front();
    }
    cases.push_back(Case {
        tenant: tenant.to_owned(),
        model: model.map(str::to_owned),
        crashes: before.map_or(0, |case| case.crashes).saturating_add(1),
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
        let (mut quarantine, now) = (Quarantine::new(HOUR), Instant::now());
        quarantine.note(now, "a", Some("m"), "signal: 8");
        assert_eq!(quarantine.check(now, "a", "m"), None);
        quarantine.note(now, "a", Some("m"), "signal: 11");
        let expected = Quarantined {
            of: Scope::Model,
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
        quarantine.note(start, "a", Some("m"), "");
        quarantine.note(start + HOUR / 2, "a", Some("m"), "");
        let left = quarantine.check(start + HOUR, "a", "m").map(|case| case.left);
        assert_eq!(left, Some(HOUR / 2));
        assert_eq!(quarantine.check(start + HOUR * 3 / 2, "a", "m"), None);
        quarantine.note(start + HOUR * 3 / 2, "a", Some("m"), "");
        assert_eq!(quarantine.check(start + HOUR * 3 / 2, "a", "m"), None);
    }

    #[test]
    fn strangers_cannot_make_it_grow() {
        let (mut quarantine, now) = (Quarantine::new(HOUR), Instant::now());
        for index in 0..2 * CASES {
            quarantine.note(now, "a", Some(&index.to_string()), "");
        }
        assert_eq!(quarantine.models.len(), CASES);
    }

    #[test]
    fn a_tenant_whose_models_go_on_crashing_pauses_longer_each_time_whatever_they_are_called() {
        let (mut quarantine, mut now) = (Quarantine::new(HOUR), Instant::now());
        let mut crashes = 0;
        let end = now + HOUR;
        while now < end {
            let model = crashes.to_string();
            match quarantine.check(now, "a", &model) {
                Some(case) => {
                    assert_eq!(case.of, Scope::Tenant);
                    now += case.left;
                }
                None => {
                    quarantine.note(now, "a", (crashes % 3 > 0).then_some(&model), "");
                    crashes += 1;
                }
            }
        }
        assert_eq!(crashes, 16, "four at once, then after 1, 2, 4 ... seconds");
        assert_eq!(quarantine.check(now, "b", "1"), None);
    }
}
