use crate::waiters::Policy;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What every grant looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantRules {
    /// Samples of a grant; the last of an extraction may be smaller. At least 1 is used.
    pub samples: usize,
    /// How long a guest's call may hold a grant before the host ends the call and takes it back.
    pub hold: Duration,
}

impl Default for GrantRules {
    /// 16 samples for at most two minutes.
    ///
    /// 16: to a CPU the size hardly matters (SqueezeNet on one thread: 6.3 ms a sample alone, 7.0 in a batch of 16, 7.5
    /// in 32), so what counts is that a call's own cost, tens of microseconds, vanishes beside 0.1 s of work. Half as
    /// many would do that too but leave less to decode side by side; twice as many would double what waits in memory
    /// (16 ImageNet samples are 10 MB as pixels) and the delay before the first row leaves. Two minutes: the slowest of
    /// the usual networks (VGG19, 0.36 s a sample on one thread) needs 6 s for 16 samples, and reading them over a bad
    /// link some more; a guest that is 10 times as slow still finishes.
    fn default() -> Self {
        Self {
            samples: 16,
            hold: Duration::from_secs(120),
        }
    }
}

/// Samples that a call may hold, until a deadline.
#[derive(Debug)]
pub struct Granted {
    /// How many; at least 1.
    pub samples: usize,
    /// When the host takes them back.
    pub until: Instant,
    tenant: Arc<str>,
}

/// Decides who gets samples next, and how many.
///
/// The grant is fixed and the budget is counted in samples. The tenant that holds least comes first, so one that asks
/// for much cannot keep out one that asks for little; within a tenant, and between equals, who waits longest. A tenant alone
/// may hold all; beside others none gets more than its share by max-min fairness, so that one whose calls take long does not
/// collect what others give back between two of theirs.
#[derive(Debug)]
pub struct Grants {
    rules: GrantRules,
    /// Samples that calls may hold at the same time, all tenants together.
    budget: usize,
    /// Extractions that could start another call.
    pub(crate) waiting: BTreeMap<u64, Asking>,
    /// Tenants whose calls hold samples.
    held: BTreeMap<Arc<str>, Holding>,
}

#[derive(Debug)]
pub(crate) struct Asking {
    tenant: Arc<str>,
    /// Not handed out yet.
    samples: usize,
}

#[derive(Debug, Default)]
struct Holding {
    samples: usize,
    /// The most at once since it last held none: what it makes use of, and may ask for again.
    most: usize,
}

impl Grants {
    /// Grants by these rules, of `budget` samples on this host. A grant that is larger than the whole budget is cut to it, so that
    /// everybody gets on; otherwise a grant waits until it fits whole.
    pub fn new(rules: GrantRules, budget: usize) -> Self {
        Self {
            rules,
            budget,
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    pub(crate) fn held_by(&self, tenant: &str) -> usize {
        self.held.get(tenant).map_or(0, |holding| holding.samples)
    }

    /// Who is next, and with how many samples.
    fn choose(&self) -> Option<(u64, usize)> {
        let ranked = self
            .waiting
            .iter()
            .map(|(id, asking)| (self.held_by(&asking.tenant), *id, asking));
        let (held, id, first) = ranked.min_by_key(|(held, id, _)| (*held, *id))?;
        if held >= self.share() {
            return None;
        }
        let limit = self.budget.max(1);
        let samples = self.grant(first).min(limit);
        let in_all = self.held.values().map(|holding| holding.samples).sum();
        (samples <= limit.saturating_sub(in_all)).then_some((id, samples))
    }

    /// What an extraction gets where there is room.
    fn grant(&self, asking: &Asking) -> usize {
        asking.samples.min(self.rules.samples.max(1))
    }

    /// How much a tenant may hold before it gets no more: the budget split evenly, where what some do not want is split among
    /// the others. Everybody wants what it holds or has held, and what it waits for. At least 1.
    fn share(&self) -> usize {
        let held = self.held.iter();
        let mut wants: BTreeMap<&str, usize> = held
            .map(|(tenant, holding)| (&**tenant, holding.samples))
            .collect();
        for asking in self.waiting.values() {
            let want = wants.entry(&asking.tenant).or_default();
            *want = want.saturating_add(self.grant(asking));
        }
        let most = |tenant: &str| self.held.get(tenant).map_or(0, |holding| holding.most);
        let mut wants: Vec<usize> = wants
            .into_iter()
            .map(|(tenant, want)| want.max(most(tenant)))
            .collect();
        wants.sort_unstable();
        let (mut left, mut sharers) = (self.budget, wants.len());
        for want in wants {
            let even = left / sharers;
            if want > even {
                return even.max(1);
            }
            left -= want;
            sharers -= 1;
        }
        self.budget.max(1)
    }
}

impl Policy for Grants {
    /// Samples that an extraction has left; at least 1.
    type Request = NonZeroUsize;
    type Share = Granted;
    type Refused = Infallible;

    fn ask(&mut self, id: u64, tenant: &str, samples: NonZeroUsize) -> Result<(), Infallible> {
        let asking = Asking {
            tenant: Arc::from(tenant),
            samples: samples.get(),
        };
        self.waiting.insert(id, asking);
        Ok(())
    }

    fn next(&mut self, now: Instant) -> Option<(u64, Granted)> {
        let (id, samples) = self.choose()?;
        let Asking { tenant, .. } = self.waiting.remove(&id)?;
        let holding = self.held.entry(Arc::clone(&tenant)).or_default();
        holding.samples += samples;
        holding.most = holding.most.max(holding.samples);
        let granted = Granted {
            samples,
            until: now + self.rules.hold,
            tenant,
        };
        Some((id, granted))
    }

    fn leave(&mut self, id: u64) {
        self.waiting.remove(&id);
    }

    fn give_back(&mut self, granted: &Granted, _time: Duration) {
        if let Some(holding) = self.held.get_mut(&granted.tenant) {
            holding.samples = holding.samples.saturating_sub(granted.samples);
            if holding.samples == 0 {
                self.held.remove(&granted.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_secs(7);

    /// Grants of 16 samples where the tenants hold so many.
    fn grants(budget: usize, held: &[(&str, usize)]) -> Grants {
        of(16, budget, held)
    }

    fn of(samples: usize, budget: usize, held: &[(&str, usize)]) -> Grants {
        let mut grants = Grants::new(GrantRules { samples, hold: HOLD }, budget);
        for (tenant, samples) in held {
            holds(&mut grants, tenant, *samples, *samples);
        }
        grants
    }

    fn holds(grants: &mut Grants, tenant: &str, samples: usize, most: usize) {
        grants.held.insert(Arc::from(tenant), Holding { samples, most });
    }

    /// What the first grant is where these ask, as (extraction, tenant, samples).
    fn granted(mut grants: Grants, asking: &[(u64, &str, usize)]) -> Option<(u64, usize)> {
        for (id, tenant, samples) in asking {
            let Ok(()) = grants.ask(*id, tenant, NonZeroUsize::new(*samples).unwrap());
        }
        let (id, granted) = grants.next(Instant::now())?;
        Some((id, granted.samples))
    }

    #[test]
    fn a_grant_is_fixed_but_for_the_rest() {
        let now = Instant::now();
        let mut fixed = grants(64, &[]);
        let Ok(()) = fixed.ask(1, "a", NonZeroUsize::new(100).unwrap());
        let (id, first) = fixed.next(now).unwrap();
        assert_eq!((id, first.samples, first.until), (1, 16, now + HOLD));
        assert_eq!(granted(grants(64, &[]), &[(1, "a", 5)]), Some((1, 5)));
        assert_eq!(granted(grants(64, &[]), &[]), None);
    }

    #[test]
    fn nothing_is_granted_beyond_the_budget() {
        let (held, asking) = ([("b", 20), ("a", 30)], [(1, "a", 100)]);
        assert_eq!(granted(grants(64, &held), &asking), None);
        assert_eq!(granted(grants(66, &held), &asking), Some((1, 16)));
    }

    #[test]
    fn a_budget_below_one_grant_still_lets_everybody_get_on() {
        let asking = [(1, "a", 100)];
        assert_eq!(granted(grants(4, &[]), &asking), Some((1, 4)));
        assert_eq!(granted(of(0, 0, &[]), &asking), Some((1, 1)));
        assert_eq!(granted(grants(4, &[("a", 4)]), &asking), None);
    }

    #[test]
    fn who_holds_least_comes_first_then_who_waits_longest() {
        let asking = [(1, "greedy", 100), (3, "small", 9), (2, "small", 9)];
        assert_eq!(granted(grants(64, &[("greedy", 16)]), &asking), Some((2, 9)));
        assert_eq!(granted(grants(64, &[]), &asking), Some((1, 16)));
    }

    /// What is decided of 64 samples for a greedy tenant that waits with two extractions, beside these.
    fn beside(
        greedy: usize,
        others: &[(&str, usize, usize)],
        asking: &[(u64, &str, usize)],
    ) -> Option<(u64, usize)> {
        let mut grants = grants(64, &[("greedy", greedy)]);
        for (tenant, samples, most) in others {
            holds(&mut grants, tenant, *samples, *most);
        }
        granted(
            grants,
            &[&[(1, "greedy", 100), (2, "greedy", 100)], asking].concat(),
        )
    }

    #[test]
    fn a_tenant_alone_may_hold_all() {
        assert_eq!(beside(16, &[], &[]), Some((1, 16)));
        assert_eq!(beside(48, &[], &[]), Some((1, 16)));
        assert_eq!(beside(64, &[], &[]), None);
    }

    #[test]
    fn beside_others_it_gets_its_share_and_what_they_do_not_want() {
        assert_eq!(beside(16, &[("b", 32, 32)], &[]), Some((1, 16)));
        assert_eq!(beside(32, &[("b", 16, 16)], &[]), Some((1, 16)));
        assert_eq!(beside(48, &[("b", 3, 3)], &[]), None, "13 are left");
        // What b gave back, it may ask for again.
        assert_eq!(beside(16, &[("b", 16, 32)], &[]), Some((1, 16)));
        assert_eq!(beside(32, &[("b", 16, 32)], &[]), None);
        // Between three it is 21 each, and nothing is left over because grants are of 16.
        let both = [("b", 8, 32), ("c", 8, 32)];
        assert_eq!(beside(16, &both, &[]), Some((1, 16)));
        assert_eq!(beside(32, &both, &[]), None);
    }

    #[test]
    fn who_has_nothing_yet_gets_something_however_many_there_are() {
        let names: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        let asking: Vec<_> = (7..)
            .zip(&names)
            .map(|(id, name)| (id, name.as_str(), 100))
            .collect();
        assert_eq!(beside(16, &[], &asking), Some((7, 16)));
        assert_eq!(beside(64, &[], &asking), None);
    }
}
