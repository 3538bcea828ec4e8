//! Division of time among competitors by weight.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

/// Time divided by weight. The unit is a nanosecond divided by [`SCALE`].
type Virtual = u128;

const SCALE: u128 = 1_000_000;

/// Fair queue, similar to Linux's completely fair scheduler: the highest rank is first, then the least time
/// divided by weight, then the oldest last turn.
///
/// A new or returning competitor starts at the time of the least served active one, minus a credit. A returning
/// competitor with more used time has to wait until the others have caught up. Idle competitors below this level are
/// forgotten, so invented names cannot consume memory, and without active competitors the whole state is reset.
#[derive(Debug)]
pub(crate) struct Shares<K> {
    credit: Duration,
    accounts: HashMap<K, Account>,
    /// Ready competitors in scheduling order.
    ready: BTreeSet<(SchedulingKey, K)>,
    /// Active competitors by used time; `idle` contains the inactive ones.
    active: BTreeSet<(Virtual, K)>,
    idle: BTreeSet<(Virtual, K)>,
    floor: Virtual,
    turns: u64,
}

type SchedulingKey = (Reverse<i32>, Virtual, u64);

#[derive(Debug, Clone)]
struct Account {
    rank: i32,
    weight: u32,
    virtual_time: Virtual,
    /// Sequence number of the last turn.
    last: u64,
    ready: bool,
    running: usize,
}

impl Account {
    fn place(&self) -> SchedulingKey {
        (Reverse(self.rank), self.virtual_time, self.last)
    }

    fn is_active(&self) -> bool {
        self.ready || self.running > 0
    }
}

impl<K> Shares<K> {
    /// Creates a queue without competitors. Each one starts with up to `credit`.
    pub(crate) fn new(credit: Duration) -> Self {
        Self {
            credit,
            accounts: HashMap::new(),
            ready: BTreeSet::new(),
            active: BTreeSet::new(),
            idle: BTreeSet::new(),
            floor: 0,
            turns: 0,
        }
    }
}

impl<K: Clone + Eq + Hash + Ord> Shares<K> {
    /// Marks `who` as ready.
    pub(crate) fn ready(&mut self, who: &K, rank: i32, weight: u32) {
        let floor = self.floor.saturating_sub(over(self.credit, weight));
        self.change(who, |account| {
            account.rank = rank;
            account.weight = weight.max(1);
            if !account.is_active() {
                account.virtual_time = account.virtual_time.max(floor);
            }
            account.ready = true;
        });
    }

    /// Marks `who` as no longer ready.
    pub(crate) fn unready(&mut self, who: &K) {
        self.change(who, |account| account.ready = false);
    }

    /// Starts a turn of `who` with the expected duration `guess`.
    pub(crate) fn start_turn(&mut self, who: &K, guess: Duration) {
        self.turns += 1;
        let last = self.turns;
        self.change(who, |account| {
            account.running += 1;
            account.last = last;
            account.virtual_time = account.virtual_time.saturating_add(over(guess, account.weight));
        });
    }

    /// Ends a turn of `who`, with the actual duration `time` and the expected duration `guess`.
    pub(crate) fn end(&mut self, who: &K, guess: Duration, time: Duration) {
        self.change(who, |account| {
            account.running = account.running.saturating_sub(1);
            let used = account.virtual_time.saturating_sub(over(guess, account.weight));
            account.virtual_time = used.saturating_add(over(time, account.weight));
        });
    }

    /// Ready competitors in scheduling order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &K> {
        self.ready.iter().map(|(_, who)| who)
    }

    /// Returns the time that `who` is behind the active competitor with the most time per weight.
    pub(crate) fn owed(&self, who: &K) -> Duration {
        let Some(account) = self.accounts.get(who) else {
            return Duration::ZERO;
        };
        let ahead = self.active.last().map_or(0, |(used, _)| *used);
        let lacks = ahead.saturating_sub(account.virtual_time) * u128::from(account.weight) / SCALE;
        Duration::from_nanos(u64::try_from(lacks).unwrap_or(u64::MAX))
    }

    /// Competitors that are ready or have running turns.
    pub(crate) fn active(&self) -> impl Iterator<Item = &K> {
        self.active.iter().map(|(_, who)| who)
    }

    /// Number of running turns of `who`.
    pub(crate) fn running<Q: Eq + Hash + ?Sized>(&self, who: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.accounts.get(who).map_or(0, |account| account.running)
    }

    /// Number of remembered competitors.
    #[cfg(test)]
    pub(crate) fn known(&self) -> usize {
        self.accounts.len()
    }

    fn change(&mut self, who: &K, change: impl FnOnce(&mut Account)) {
        let mut account = self.accounts.remove(who).unwrap_or(Account {
            rank: 0,
            weight: 1,
            virtual_time: 0,
            last: 0,
            ready: false,
            running: 0,
        });
        self.ready.remove(&(account.place(), who.clone()));
        self.active.remove(&(account.virtual_time, who.clone()));
        self.idle.remove(&(account.virtual_time, who.clone()));
        change(&mut account);
        if account.ready {
            self.ready.insert((account.place(), who.clone()));
        }
        let all = if account.is_active() {
            &mut self.active
        } else {
            &mut self.idle
        };
        all.insert((account.virtual_time, who.clone()));
        self.accounts.insert(who.clone(), account);
        self.forget();
    }

    fn forget(&mut self) {
        match self.active.first() {
            Some((least, _)) => self.floor = self.floor.max(*least),
            // No competitor is active, so no differences have to be balanced.
            None => *self = Self::new(self.credit),
        }
        while let Some((used, who)) = self.idle.first()
            && *used <= self.floor.saturating_sub(over(self.credit, 1))
        {
            self.accounts.remove(who);
            self.idle.pop_first();
        }
    }
}

fn over(time: Duration, weight: u32) -> Virtual {
    time.as_nanos().saturating_mul(SCALE) / u128::from(weight.max(1))
}
