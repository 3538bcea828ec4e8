//! Whose turn it is: of all tenants with something ready, the one that has used the least time. As Linux's completely
//! fair scheduler does, a tenant that comes anew, or back, starts where the least of the active ones stands: it is next,
//! and owes and is owed nothing for the time before. Pure: it reads no clock and waits for nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Things that are ready, by tenant.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    tenants: BTreeMap<Arc<str>, Tenant<T>>,
    /// The least time that an active tenant has used; never goes back.
    floor: Duration,
    /// What a turn is taken to last until it is known: with several threads, the turns that run now count as well.
    guess: Duration,
}

#[derive(Debug)]
struct Tenant<T> {
    used: Duration,
    ready: VecDeque<T>,
    running: usize,
}

impl<T> Tenant<T> {
    fn is_active(&self) -> bool {
        self.running > 0 || !self.ready.is_empty()
    }
}

impl<T> Turns<T> {
    pub(crate) fn new(guess: Duration) -> Self {
        Self {
            tenants: BTreeMap::new(),
            floor: Duration::ZERO,
            guess,
        }
    }

    /// Something of this tenant's is ready.
    pub(crate) fn push(&mut self, tenant: &Arc<str>, thing: T) {
        let entry = self.tenants.entry(Arc::clone(tenant)).or_insert(Tenant {
            used: self.floor,
            ready: VecDeque::new(),
            running: 0,
        });
        if !entry.is_active() {
            entry.used = entry.used.max(self.floor);
        }
        entry.ready.push_back(thing);
    }

    /// What is to run next, and whose it is; [`Self::ran`] follows.
    pub(crate) fn next(&mut self) -> Option<(Arc<str>, T)> {
        let ready = self
            .tenants
            .iter_mut()
            .filter(|(_, tenant)| !tenant.ready.is_empty());
        let (name, tenant) = ready.min_by_key(|(_, tenant)| tenant.used)?;
        let thing = tenant.ready.pop_front()?;
        tenant.running += 1;
        tenant.used += self.guess;
        Some((Arc::clone(name), thing))
    }

    /// A turn of this tenant's is over and took `time`.
    pub(crate) fn ran(&mut self, tenant: &str, time: Duration) {
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            tenant.running = tenant.running.saturating_sub(1);
            tenant.used = tenant.used.saturating_sub(self.guess).saturating_add(time);
        }
        let active = self.tenants.values().filter(|tenant| tenant.is_active());
        match active.map(|tenant| tenant.used).min() {
            Some(least) => {
                self.floor = self.floor.max(least);
                let floor = self.floor;
                self.tenants
                    .retain(|_, tenant| tenant.is_active() || tenant.used > floor);
            }
            // Nobody waits, so nobody is owed anything.
            None => self.tenants.clear(),
        }
    }

    /// Everything that is ready, in no order.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        let ready = self
            .tenants
            .values_mut()
            .flat_map(|tenant| std::mem::take(&mut tenant.ready));
        ready.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn named(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    /// Runs one thing at a time, `count` times; each takes as many milliseconds as it says and is ready again at once.
    fn run(turns: &mut Turns<u32>, count: usize) -> BTreeMap<Arc<str>, Duration> {
        let mut shares = BTreeMap::new();
        for _ in 0..count {
            let (tenant, millis) = turns.next().unwrap();
            let time = MILLI * millis;
            *shares.entry(Arc::clone(&tenant)).or_default() += time;
            turns.push(&tenant, millis);
            turns.ran(&tenant, time);
        }
        shares
    }

    #[test]
    fn many_tasks_get_no_more_than_one() {
        let mut turns = Turns::new(MILLI);
        (0..10).for_each(|_| turns.push(&named("greedy"), 5));
        turns.push(&named("modest"), 5);
        let shares = run(&mut turns, 100);
        assert_eq!(shares["greedy"], shares["modest"]);
    }

    #[test]
    fn short_turns_come_more_often() {
        let mut turns = Turns::new(MILLI);
        turns.push(&named("long"), 20);
        turns.push(&named("short"), 1);
        let shares = run(&mut turns, 210);
        assert_eq!(shares["long"], shares["short"]);
    }

    #[test]
    fn a_newcomer_is_next_and_then_shares() {
        let mut turns = Turns::new(MILLI);
        turns.push(&named("old"), 1);
        run(&mut turns, 10_000);
        turns.push(&named("new"), 1);
        let shares = run(&mut turns, 100);
        assert!(shares["new"] >= shares["old"]);
        assert!(shares["new"] - shares["old"] <= MILLI * 2, "{shares:?}");
    }

    #[test]
    fn who_comes_back_at_once_still_owes() {
        let mut turns = Turns::new(MILLI);
        turns.push(&named("sleeper"), 50);
        let (sleeper, _) = turns.next().unwrap();
        turns.push(&named("busy"), 1);
        turns.ran(&sleeper, MILLI * 50);
        turns.push(&sleeper, 1);
        assert_eq!(run(&mut turns, 40).get("sleeper"), None);
        assert!(run(&mut turns, 40).contains_key("sleeper"));
    }

    #[test]
    fn turns_that_run_now_count() {
        let mut turns = Turns::new(MILLI * 5);
        (0..4).for_each(|_| turns.push(&named("a"), 5));
        (0..4).for_each(|_| turns.push(&named("b"), 5));
        let at_once: Vec<_> = (0..4).map(|_| turns.next().unwrap().0).collect();
        assert_eq!(at_once.iter().filter(|name| &***name == "a").count(), 2);
    }

    #[test]
    fn who_waits_for_nothing_takes_no_memory() {
        let mut turns = Turns::new(MILLI);
        for tenant in 0..1_000 {
            turns.push(&named(&tenant.to_string()), 1);
            let (name, _) = turns.next().unwrap();
            turns.ran(&name, MILLI);
        }
        assert!(turns.tenants.is_empty());
        turns.push(&named("left"), 7);
        assert_eq!(turns.drain(), [7]);
    }
}
