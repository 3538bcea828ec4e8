use crate::shares::Shares;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Ready items of tenants, which are served in the order of [`Shares`] without weights. Within a tenant, items are
/// served in order of arrival.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    shares: Shares<Arc<str>>,
    /// Queues with at least one item.
    ready: BTreeMap<Arc<str>, VecDeque<T>>,
    guess: Duration,
}

impl<T> Turns<T> {
    /// Creates an empty queue. Running turns count as `guess` until the end.
    pub(crate) fn new(guess: Duration) -> Self {
        Self {
            // The time of the least served tenant can include the guess of a running turn.
            shares: Shares::new(guess),
            ready: BTreeMap::new(),
            guess,
        }
    }

    /// Adds an item to the tenant's queue.
    pub(crate) fn push(&mut self, tenant: &str, thing: T) {
        if let Some(ready) = self.ready.get_mut(tenant) {
            ready.push_back(thing);
            return;
        }
        let tenant = Arc::from(tenant);
        self.shares.ready(&tenant, 0, 1);
        self.ready.insert(tenant, VecDeque::from([thing]));
    }

    /// Starts the next turn. Returns the tenant and the item; [`Self::ran`] must follow.
    pub(crate) fn start_next(&mut self) -> Option<(Arc<str>, T)> {
        let tenant = Arc::clone(self.shares.iter().next()?);
        self.start(tenant)
    }

    /// Same as [`Self::start_next`] for the tenant with the smallest `rank`, a function of the number of running turns
    /// and the ready items. Tenants without rank are skipped.
    pub(crate) fn begin_by<K: Ord>(
        &mut self,
        rank: impl Fn(usize, &VecDeque<T>) -> Option<K>,
    ) -> Option<(Arc<str>, T)> {
        let ranked = self.shares.iter().filter_map(|tenant| {
            let ready = self.ready.get(tenant)?;
            Some((rank(self.shares.running(tenant), ready)?, tenant))
        });
        let (_, tenant) = ranked.min_by(|(one, _), (other, _)| one.cmp(other))?;
        let tenant = Arc::clone(tenant);
        self.start(tenant)
    }

    fn start(&mut self, tenant: Arc<str>) -> Option<(Arc<str>, T)> {
        let thing = self.ready.get_mut(&tenant)?.pop_front()?;
        self.shares.start_turn(&tenant, self.guess);
        self.remove_if_empty(&tenant);
        Some((tenant, thing))
    }

    /// Ends a turn of `tenant` that took `time`.
    pub(crate) fn ran(&mut self, tenant: &Arc<str>, time: Duration) {
        self.shares.end(tenant, self.guess, time);
    }

    /// Removes the first ready item that satisfies `condition`. Tenants are searched by name.
    pub(crate) fn remove(&mut self, condition: impl Fn(&T) -> bool) -> Option<T> {
        let (tenant, thing) = self.ready.iter_mut().find_map(|(tenant, ready)| {
            let position = ready.iter().position(&condition)?;
            Some((Arc::clone(tenant), ready.remove(position)?))
        })?;
        self.remove_if_empty(&tenant);
        Some(thing)
    }

    fn remove_if_empty(&mut self, tenant: &Arc<str>) {
        if self.ready.get(tenant).is_some_and(VecDeque::is_empty) {
            self.ready.remove(tenant);
            self.shares.unready(tenant);
        }
    }

    /// Returns the queues of ready items, one per tenant.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &VecDeque<T>> {
        self.ready.values()
    }

    /// Returns the tenants with running turns or ready items.
    pub(crate) fn active(&self) -> impl Iterator<Item = &Arc<str>> {
        self.shares.active()
    }

    /// Returns the number of running turns and of ready items of a tenant.
    pub(crate) fn counts(&self, tenant: &str) -> (usize, usize) {
        let ready = self.ready.get(tenant).map_or(0, VecDeque::len);
        (self.shares.running(tenant), ready)
    }

    /// Removes and returns the ready items, grouped by tenant.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        let ready = std::mem::take(&mut self.ready);
        ready.keys().for_each(|tenant| self.shares.unready(tenant));
        ready.into_values().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    /// Executes `count` items sequentially. The value of an item is the duration in milliseconds. Items
    /// become ready again immediately.
    fn run(turns: &mut Turns<u32>, count: usize) -> BTreeMap<Arc<str>, Duration> {
        let mut shares = BTreeMap::new();
        for _ in 0..count {
            let (tenant, millis) = turns.start_next().unwrap();
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
        (0..10).for_each(|_| turns.push("greedy", 5));
        turns.push("modest", 5);
        let shares = run(&mut turns, 100);
        assert_eq!(shares["greedy"], shares["modest"]);
    }

    #[test]
    fn short_turns_come_more_often() {
        let mut turns = Turns::new(MILLI);
        turns.push("long", 20);
        turns.push("short", 1);
        let shares = run(&mut turns, 210);
        assert_eq!(shares["long"], shares["short"]);
    }

    #[test]
    fn a_newcomer_is_next_and_then_shares() {
        let mut turns = Turns::new(MILLI);
        turns.push("old", 1);
        run(&mut turns, 10_000);
        turns.push("new", 1);
        let shares = run(&mut turns, 100);
        assert!(shares["new"] >= shares["old"]);
        assert!(shares["new"] - shares["old"] <= MILLI * 2, "{shares:?}");
    }

    #[test]
    fn equals_take_turns_whatever_their_names() {
        let mut turns = Turns::new(MILLI);
        turns.push("b", 1);
        run(&mut turns, 3);
        for name in ["a", "b", "c"] {
            turns.push(name, 1);
        }
        let order = std::iter::from_fn(|| {
            let (name, _) = turns.start_next()?;
            turns.ran(&name, MILLI);
            Some(name.to_string())
        });
        assert_eq!(order.collect::<Vec<_>>(), ["a", "c", "b", "b"]);
    }

    #[test]
    fn who_comes_back_at_once_still_owes() {
        let mut turns = Turns::new(MILLI);
        turns.push("sleeper", 50);
        let (sleeper, _) = turns.start_next().unwrap();
        turns.push("busy", 1);
        turns.ran(&sleeper, MILLI * 50);
        turns.push(&sleeper, 1);
        assert_eq!(run(&mut turns, 40).get("sleeper"), None);
        assert!(run(&mut turns, 40).contains_key("sleeper"));
    }

    #[test]
    fn turns_that_run_now_count() {
        let mut turns = Turns::new(MILLI * 5);
        (0..4).for_each(|_| turns.push("a", 5));
        (0..4).for_each(|_| turns.push("b", 5));
        let at_once: Vec<_> = (0..4).map(|_| turns.start_next().unwrap().0).collect();
        assert_eq!(at_once.iter().filter(|name| &***name == "a").count(), 2);
    }

    #[test]
    fn who_has_enough_running_is_passed_over() {
        let mut turns = Turns::new(MILLI);
        let below_two = |turns: &mut Turns<u32>| {
            let begun = turns.begin_by(|running, _| (running < 2).then_some(()));
            begun.map(|(name, _)| name.to_string())
        };
        (0..3).for_each(|_| turns.push("a", 1));
        assert!(below_two(&mut turns).is_some() && below_two(&mut turns).is_some());
        assert!(below_two(&mut turns).is_none());
        turns.push("b", 1);
        assert_eq!(below_two(&mut turns).unwrap(), "b");
        turns.ran(&Arc::from("a"), MILLI);
        assert_eq!(below_two(&mut turns).unwrap(), "a");
    }

    #[test]
    fn idle_tenants_are_forgotten() {
        let mut turns = Turns::new(MILLI);
        for tenant in 0..1_000 {
            turns.push(&tenant.to_string(), 1);
            let (name, _) = turns.start_next().unwrap();
            turns.ran(&name, MILLI);
        }
        assert_eq!((turns.shares.known(), turns.ready.len()), (0, 0));
        turns.push("left", 7);
        assert_eq!(turns.drain(), [7]);
        turns.push("taken back", 8);
        assert_eq!(turns.remove(|thing| *thing == 8), Some(8));
        assert_eq!(turns.remove(|thing| *thing == 8), None);
        assert_eq!((turns.shares.known(), turns.ready.len()), (0, 0));
    }
}
