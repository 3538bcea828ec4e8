use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Fair queue of tenants with ready items. The tenant with the smallest amount of used time is next; between
/// equals, the tenant with the oldest last turn. Within a tenant, items are served in order of arrival.
///
/// Similar to Linux's completely fair scheduler, a new or returning tenant starts at the time of the least
/// served active tenant and receives no credit for earlier inactivity. A tenant that used more is remembered
/// and waits until the others have caught up, unless all tenants become inactive. Other tenants without ready
/// or running items are forgotten, so invented names cannot consume memory.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    tenants: BTreeMap<Arc<str>, Account<T>>,
    /// Minimum time used by the active tenants; never decreases.
    floor: Duration,
    guess: Duration,
    begun: u64,
}

/// Scheduling state of a tenant.
#[derive(Debug)]
pub(crate) struct Account<T> {
    pub(crate) device_time: Duration,
    /// Sequence number of the last turn, or 0.
    pub(crate) last: u64,
    pub(crate) ready: VecDeque<T>,
    pub(crate) running: usize,
}

impl<T> Account<T> {
    pub(crate) fn is_active(&self) -> bool {
        self.running > 0 || !self.ready.is_empty()
    }
}

impl<T> Turns<T> {
    /// Creates an empty queue. Running turns count as `guess` until the end.
    pub(crate) fn new(guess: Duration) -> Self {
        Self {
            tenants: BTreeMap::new(),
            floor: Duration::ZERO,
            guess,
            begun: 0,
        }
    }

    /// Adds an item to the tenant's queue.
    pub(crate) fn push(&mut self, tenant: &str, thing: T) {
        if let Some(known) = self.tenants.get_mut(tenant) {
            if !known.is_active() {
                known.device_time = known.device_time.max(self.floor);
            }
            known.ready.push_back(thing);
            return;
        }
        let newcomer = Account {
            device_time: self.floor,
            last: 0,
            ready: VecDeque::from([thing]),
            running: 0,
        };
        self.tenants.insert(Arc::from(tenant), newcomer);
    }

    /// Starts the next turn. Returns the tenant and the item; [`Self::ran`] must follow.
    pub(crate) fn start_next(&mut self) -> Option<(Arc<str>, T)> {
        self.begin_by(|account| Some((account.device_time, account.last)))
    }

    /// Same as [`Self::start_next`] for the tenant with the smallest `rank`; tenants without rank are
    /// skipped.
    pub(crate) fn begin_by<K: Ord>(
        &mut self,
        rank: impl Fn(&Account<T>) -> Option<K>,
    ) -> Option<(Arc<str>, T)> {
        let ready = self
            .tenants
            .iter_mut()
            .filter(|(_, account)| !account.ready.is_empty());
        let ranked = ready.filter_map(|(name, account)| Some((rank(account)?, name, account)));
        let (_, name, account) = ranked.min_by(|(one, ..), (other, ..)| one.cmp(other))?;
        let thing = account.ready.pop_front()?;
        self.begun += 1;
        account.last = self.begun;
        account.running += 1;
        account.device_time = account.device_time.saturating_add(self.guess);
        Some((Arc::clone(name), thing))
    }

    /// Ends a turn of `tenant` that took `time`.
    pub(crate) fn ran(&mut self, tenant: &str, time: Duration) {
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            tenant.running = tenant.running.saturating_sub(1);
            tenant.device_time = tenant.device_time.saturating_sub(self.guess).saturating_add(time);
        }
        self.forget_idle();
    }

    /// Removes the first ready item that satisfies `condition`. Tenants are searched by name.
    pub(crate) fn remove(&mut self, condition: impl Fn(&T) -> bool) -> Option<T> {
        let removed = self.tenants.values_mut().find_map(|tenant| {
            let position = tenant.ready.iter().position(&condition)?;
            tenant.ready.remove(position)
        })?;
        self.forget_idle();
        Some(removed)
    }

    /// Returns the ready items, grouped by tenant.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.tenants.values().flat_map(|account| &account.ready)
    }

    /// Returns the state of a tenant, if known.
    pub(crate) fn account(&self, tenant: &str) -> Option<&Account<T>> {
        self.tenants.get(tenant)
    }

    /// Returns the state of all known tenants.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = (&Arc<str>, &Account<T>)> {
        self.tenants.iter()
    }

    /// Removes and returns the ready items, grouped by tenant.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        let ready = self
            .tenants
            .values_mut()
            .flat_map(|tenant| std::mem::take(&mut tenant.ready))
            .collect();
        self.forget_idle();
        ready
    }

    fn forget_idle(&mut self) {
        let active = self.tenants.values().filter(|tenant| tenant.is_active());
        match active.map(|tenant| tenant.device_time).min() {
            Some(least) => {
                self.floor = self.floor.max(least);
                let floor = self.floor;
                self.tenants
                    .retain(|_, tenant| tenant.is_active() || tenant.device_time > floor);
            }
            // Without active tenants, no differences remain to be balanced.
            None => self.tenants.clear(),
        }
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
            let begun = turns.begin_by(|account| (account.running < 2).then_some(account.device_time));
            begun.map(|(name, _)| name.to_string())
        };
        (0..3).for_each(|_| turns.push("a", 1));
        assert!(below_two(&mut turns).is_some() && below_two(&mut turns).is_some());
        assert!(below_two(&mut turns).is_none());
        turns.push("b", 1);
        assert_eq!(below_two(&mut turns).unwrap(), "b");
        turns.ran("a", MILLI);
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
        assert!(turns.tenants.is_empty());
        turns.push("left", 7);
        assert_eq!(turns.drain(), [7]);
        turns.push("taken back", 8);
        assert_eq!(turns.remove(|thing| *thing == 8), Some(8));
        assert_eq!(turns.remove(|thing| *thing == 8), None);
        assert!(turns.tenants.is_empty());
    }
}
