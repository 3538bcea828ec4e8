use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Whose turn it is: of all tenants with something ready, the one that has used the least time; among equals, the one whose
/// last turn is longest ago. Within a tenant, first come, first served.
///
/// As in Linux's completely fair scheduler, a tenant that comes anew, or back, starts where the least of the active ones
/// stands: it is next, and owes and is owed nothing for the time before. A tenant is known here only while it has something
/// ready or running, or has used more than others, so strangers cannot make this grow by inventing names.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    tenants: BTreeMap<Arc<str>, Account<T>>,
    /// The least time that an active tenant has used; never goes back.
    floor: Duration,
    guess: Duration,
    begun: u64,
}

/// What is known of one tenant.
#[derive(Debug)]
pub(crate) struct Account<T> {
    pub(crate) used: Duration,
    /// Which of all turns was its last; 0 before its first.
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
    /// Nothing is ready. `guess` is what a turn is taken to last until that is known: where several run at once, those that
    /// have not ended count as well.
    pub(crate) fn new(guess: Duration) -> Self {
        Self {
            tenants: BTreeMap::new(),
            floor: Duration::ZERO,
            guess,
            begun: 0,
        }
    }

    /// Something of this tenant's is ready.
    pub(crate) fn push(&mut self, tenant: &str, thing: T) {
        if let Some(known) = self.tenants.get_mut(tenant) {
            if !known.is_active() {
                known.used = known.used.max(self.floor);
            }
            known.ready.push_back(thing);
            return;
        }
        let newcomer = Account {
            used: self.floor,
            last: 0,
            ready: VecDeque::from([thing]),
            running: 0,
        };
        self.tenants.insert(Arc::from(tenant), newcomer);
    }

    /// Begins the next turn: what is to run, and whose it is. [`Self::ran`] must follow.
    pub(crate) fn start_next(&mut self) -> Option<(Arc<str>, T)> {
        self.begin_by(|account| Some((account.used, account.last)))
    }

    /// As [`Self::begin`], but of the tenant that `rank` puts first; those without a rank are passed over.
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
        account.used = account.used.saturating_add(self.guess);
        Some((Arc::clone(name), thing))
    }

    /// A turn of this tenant's is over and took `time`.
    pub(crate) fn ran(&mut self, tenant: &str, time: Duration) {
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            tenant.running = tenant.running.saturating_sub(1);
            tenant.used = tenant.used.saturating_sub(self.guess).saturating_add(time);
        }
        self.forget_idle();
    }

    /// Takes out the first thing that `condition` holds for: no turn of it will come.
    pub(crate) fn remove(&mut self, condition: impl Fn(&T) -> bool) -> Option<T> {
        let removed = self.tenants.values_mut().find_map(|tenant| {
            let position = tenant.ready.iter().position(&condition)?;
            tenant.ready.remove(position)
        })?;
        self.forget_idle();
        Some(removed)
    }

    /// Everything that is ready, tenant by tenant.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.tenants.values().flat_map(|account| &account.ready)
    }

    /// What is known of a tenant, if anything is.
    pub(crate) fn account(&self, tenant: &str) -> Option<&Account<T>> {
        self.tenants.get(tenant)
    }

    /// Every tenant of which anything is known.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = (&Arc<str>, &Account<T>)> {
        self.tenants.iter()
    }

    /// Takes out everything that is ready, tenant by tenant.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    /// Runs one thing at a time, `count` times; each takes as many milliseconds as it says and is ready again at once.
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
            let begun = turns.begin_by(|account| (account.running < 2).then_some(account.used));
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
    fn who_waits_for_nothing_takes_no_memory() {
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
