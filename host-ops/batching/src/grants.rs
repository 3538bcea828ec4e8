use std::collections::BTreeMap;
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

/// An extraction that has samples left and could start another call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting<'a> {
    /// Which extraction; unique among those that wait.
    pub extraction: u64,
    /// Whose.
    pub tenant: &'a str,
    /// Samples not handed out yet; at 0 it is passed over.
    pub samples: usize,
    /// Since when it waits for this grant.
    pub since: Instant,
}

/// A tenant whose calls hold samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder<'a> {
    /// Who.
    pub tenant: &'a str,
    /// Samples its calls hold now.
    pub samples: usize,
    /// The most they have held at once since they last held none: what it makes use of, and may ask for again.
    pub most: usize,
}

/// What may be granted on this host, and what is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget<'a> {
    /// Samples that calls may hold at the same time, all tenants together.
    pub samples: usize,
    /// Who holds samples now. A tenant that is not listed holds none.
    pub held: &'a [Holder<'a>],
}

impl Budget<'_> {
    fn held_in_all(&self) -> usize {
        self.held
            .iter()
            .fold(0, |sum, holder| sum.saturating_add(holder.samples))
    }

    fn held_by(&self, tenant: &str) -> usize {
        self.held
            .iter()
            .filter(|holder| holder.tenant == tenant)
            .map(|holder| holder.samples)
            .sum()
    }
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Call the guest of this extraction with its next samples.
    Grant {
        /// Which extraction.
        extraction: u64,
        /// How many samples; at least 1.
        samples: usize,
        /// When the host takes the grant back.
        until: Instant,
    },
    /// Nothing, until an extraction arrives or a call gives its grant back.
    Wait,
}

/// Decides who gets samples next, and how many.
///
/// The grant is fixed and the budget is counted in samples. The tenant that holds least comes first, so one that asks
/// for much cannot keep out one that asks for little; within a tenant, and between equals, who waits longest. A tenant alone
/// may hold all; beside others none gets more than its share by max-min fairness, so that one whose calls take long does not
/// collect what others give back between two of theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Grants {
    rules: GrantRules,
}

impl Grants {
    /// Grants by these rules.
    pub fn new(rules: GrantRules) -> Self {
        Self { rules }
    }

    /// The decision for this moment. A grant that is larger than the whole budget is cut to it, so that everybody gets
    /// on; otherwise a grant waits until it fits whole.
    pub fn next(&self, now: Instant, waiting: &[Waiting<'_>], budget: &Budget<'_>) -> Decision {
        let first = waiting
            .iter()
            .filter(|candidate| candidate.samples > 0)
            .min_by_key(|candidate| {
                (
                    budget.held_by(candidate.tenant),
                    candidate.since,
                    candidate.extraction,
                )
            });
        let Some(first) = first else { return Decision::Wait };
        if budget.held_by(first.tenant) >= self.share(waiting, budget) {
            return Decision::Wait;
        }
        let limit = budget.samples.max(1);
        let samples = first.samples.min(self.rules.samples.max(1)).min(limit);
        if samples > limit.saturating_sub(budget.held_in_all()) {
            return Decision::Wait;
        }
        Decision::Grant {
            extraction: first.extraction,
            samples,
            until: now + self.rules.hold,
        }
    }

    /// How much a tenant may hold before it gets no more: the budget split evenly, where what some do not want is split among
    /// the others. Everybody wants what it holds or has held, and what it waits for. At least 1.
    fn share(&self, waiting: &[Waiting<'_>], budget: &Budget<'_>) -> usize {
        let mut wants: BTreeMap<&str, usize> = BTreeMap::new();
        for holder in budget.held {
            wants.insert(holder.tenant, holder.samples);
        }
        for asking in waiting {
            let want = wants.entry(asking.tenant).or_default();
            *want = want.saturating_add(asking.samples.min(self.rules.samples.max(1)));
        }
        for holder in budget.held {
            let want = wants.entry(holder.tenant).or_default();
            *want = holder.most.max(*want);
        }
        let mut wants: Vec<usize> = wants.into_values().collect();
        wants.sort_unstable();
        let (mut left, mut sharers) = (budget.samples, wants.len());
        for want in wants {
            let even = left / sharers;
            if want > even {
                return even.max(1);
            }
            left -= want;
            sharers -= 1;
        }
        budget.samples.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_secs(7);

    fn grants(samples: usize) -> Grants {
        Grants::new(GrantRules { samples, hold: HOLD })
    }

    fn waiting(extraction: u64, tenant: &str, samples: usize, since: Instant) -> Waiting<'_> {
        Waiting {
            extraction,
            tenant,
            samples,
            since,
        }
    }

    fn holds(tenant: &str, samples: usize) -> Holder<'_> {
        Holder {
            tenant,
            samples,
            most: samples,
        }
    }

    fn granted(decision: Decision) -> Option<(u64, usize)> {
        match decision {
            Decision::Grant {
                extraction, samples, ..
            } => Some((extraction, samples)),
            Decision::Wait => None,
        }
    }

    #[test]
    fn a_grant_is_fixed_but_for_the_rest() {
        let now = Instant::now();
        let budget = Budget {
            samples: 64,
            held: &[],
        };
        let decision = grants(16).next(now, &[waiting(1, "a", 100, now)], &budget);
        assert_eq!(
            decision,
            Decision::Grant {
                extraction: 1,
                samples: 16,
                until: now + HOLD
            }
        );
        assert_eq!(
            granted(grants(16).next(now, &[waiting(1, "a", 5, now)], &budget)),
            Some((1, 5))
        );
        assert_eq!(
            granted(grants(16).next(now, &[waiting(1, "a", 0, now)], &budget)),
            None
        );
        assert_eq!(granted(grants(16).next(now, &[], &budget)), None);
    }

    #[test]
    fn nothing_is_granted_beyond_the_budget() {
        let now = Instant::now();
        let asking = [waiting(1, "a", 100, now)];
        let held = [holds("b", 20), holds("a", 30)];
        assert_eq!(
            granted(grants(16).next(
                now,
                &asking,
                &Budget {
                    samples: 64,
                    held: &held
                }
            )),
            None
        );
        assert_eq!(
            granted(grants(16).next(
                now,
                &asking,
                &Budget {
                    samples: 66,
                    held: &held
                }
            )),
            Some((1, 16))
        );
    }

    #[test]
    fn a_budget_below_one_grant_still_lets_everybody_get_on() {
        let now = Instant::now();
        let asking = [waiting(1, "a", 100, now)];
        assert_eq!(
            granted(grants(16).next(
                now,
                &asking,
                &Budget {
                    samples: 4,
                    held: &[]
                }
            )),
            Some((1, 4))
        );
        assert_eq!(
            granted(grants(0).next(
                now,
                &asking,
                &Budget {
                    samples: 0,
                    held: &[]
                }
            )),
            Some((1, 1))
        );
        assert_eq!(
            granted(grants(16).next(
                now,
                &asking,
                &Budget {
                    samples: 4,
                    held: &[holds("a", 4)]
                }
            )),
            None
        );
    }

    #[test]
    fn who_holds_least_comes_first_then_who_waits_longest() {
        let earlier = Instant::now();
        let now = earlier + Duration::from_secs(1);
        let asking = [
            waiting(1, "greedy", 100, earlier),
            waiting(3, "small", 9, now),
            waiting(2, "small", 9, earlier),
        ];
        let budget = Budget {
            samples: 64,
            held: &[holds("greedy", 16)],
        };
        assert_eq!(granted(grants(16).next(now, &asking, &budget)), Some((2, 9)));
        let none = Budget {
            samples: 64,
            held: &[],
        };
        assert_eq!(granted(grants(16).next(now, &asking, &none)), Some((1, 16)));
    }

    /// What is decided of 64 samples for a greedy tenant that waits with two extractions, beside these.
    fn beside(greedy: usize, others: &[Holder<'_>], asking: &[Waiting<'_>]) -> Option<(u64, usize)> {
        let now = Instant::now();
        let held: Vec<Holder<'_>> = others.iter().copied().chain([holds("greedy", greedy)]).collect();
        let mut waits = vec![waiting(1, "greedy", 100, now), waiting(2, "greedy", 100, now)];
        waits.extend(asking);
        granted(grants(16).next(
            now,
            &waits,
            &Budget {
                samples: 64,
                held: &held,
            },
        ))
    }

    #[test]
    fn a_tenant_alone_may_hold_all() {
        assert_eq!(beside(16, &[], &[]), Some((1, 16)));
        assert_eq!(beside(48, &[], &[]), Some((1, 16)));
        assert_eq!(beside(64, &[], &[]), None);
    }

    #[test]
    fn beside_others_it_gets_its_share_and_what_they_do_not_want() {
        assert_eq!(beside(16, &[holds("b", 32)], &[]), Some((1, 16)));
        assert_eq!(beside(32, &[holds("b", 16)], &[]), Some((1, 16)));
        assert_eq!(beside(48, &[holds("b", 3)], &[]), None, "13 are left");
        // What b gave back, it may ask for again.
        let back = Holder {
            most: 32,
            ..holds("b", 16)
        };
        assert_eq!(beside(16, &[back], &[]), Some((1, 16)));
        assert_eq!(beside(32, &[back], &[]), None);
        // Between three it is 21 each, and nothing is left over because grants are of 16.
        let [b, c] = [holds("b", 8), holds("c", 8)].map(|holder| Holder { most: 32, ..holder });
        assert_eq!(beside(16, &[b, c], &[]), Some((1, 16)));
        assert_eq!(beside(32, &[b, c], &[]), None);
    }

    #[test]
    fn who_has_nothing_yet_gets_something_however_many_there_are() {
        let now = Instant::now();
        let names: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        let waits: Vec<Waiting<'_>> = names.iter().map(|name| waiting(7, name, 100, now)).collect();
        assert_eq!(beside(16, &[], &waits), Some((7, 16)));
        assert_eq!(beside(64, &[], &waits), None);
    }
}
