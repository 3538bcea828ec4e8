//! The time of a host, compared with the clock of the state's store and with those of other hosts. See
//! `docs/state.md`.

use crate::day::Day;
use frostline_objects::{ClockReading, Store};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// Tolerated difference between two clocks in seconds. Synchronized clocks differ by milliseconds, and records of
/// other hosts are up to 20 s old when they are read.
const TOLERANCE: i64 = 60;

/// Maximum age in seconds of a record that a host considers at its start. Hosts write a record every ten seconds.
const RECENT: u64 = 30;

/// Clock of this machine.
#[derive(Debug, Clone, Default)]
pub struct LocalClock(Arc<AtomicI64>);

impl LocalClock {
    /// Sets the seconds that this clock is ahead of the system's, for tests. The default is 0.
    pub fn shift(&self, seconds: i64) {
        self.0.store(seconds, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        frostline_primitives::now().saturating_add_signed(self.0.load(Ordering::Relaxed))
    }
}

/// Clock of a host, compared with the clocks of the state's store and of other hosts. All times are in seconds since 1970.
pub struct Clock {
    local: LocalClock,
    /// Store of the state.
    store: Arc<Store>,
    /// Clocks of other hosts.
    hosts: Mutex<Vec<ClockReading>>,
}

/// Comparison of the local clock with others, with the seconds that the others are ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockCheck {
    /// No other clock is known.
    Alone,
    /// Another clock differs by up to 60 s.
    Agrees(i64),
    /// The clocks differ by more than 60 s, and it is unknown which one is wrong.
    Differs(i64),
    /// The store and another host agree, and no clock agrees with the local one.
    Outvoted(i64),
}

impl Clock {
    /// Creates a clock that is compared with that of `store`.
    pub fn new(local: LocalClock, store: Arc<Store>) -> Self {
        Self {
            local,
            store,
            hosts: Mutex::default(),
        }
    }

    /// Returns the local time.
    pub fn local(&self) -> u64 {
        self.local.now()
    }

    /// Returns the local time, or that of the other clocks if the local clock is outvoted.
    pub fn now(&self) -> u64 {
        match self.check() {
            ClockCheck::Outvoted(ahead) => self.local().saturating_add_signed(ahead),
            _ => self.local(),
        }
    }

    /// Returns the day of [`now`](Self::now).
    pub fn today(&self) -> Day {
        Day::at(self.now())
    }

    /// Returns the earliest time of all clocks, to check whether something has expired.
    pub fn earliest(&self) -> u64 {
        match self.check() {
            ClockCheck::Differs(ahead) => self.local().saturating_add_signed(ahead.min(0)),
            _ => self.now(),
        }
    }

    /// Returns the latest time of all clocks, to compute when something expires.
    pub fn latest(&self) -> u64 {
        match self.check() {
            ClockCheck::Differs(ahead) => self.local().saturating_add_signed(ahead.max(0)),
            _ => self.now(),
        }
    }

    /// True unless another clock differs. Otherwise, nothing may be deleted because of its age.
    pub fn may_expire(&self) -> bool {
        matches!(self.check(), ClockCheck::Alone | ClockCheck::Agrees(_))
    }

    /// True if another clock agrees with the local one.
    pub fn is_confirmed(&self) -> bool {
        matches!(self.check(), ClockCheck::Agrees(_))
    }

    /// Compares the local clock with the others.
    pub fn check(&self) -> ClockCheck {
        let local = self.local();
        let at = Instant::now();
        let store = self.store.clock().map(|reading| reading.ahead_of(local, at));
        let hosts = self.hosts.lock();
        compare(store, hosts.iter().map(|reading| reading.ahead_of(local, at)))
    }

    /// Sets the clocks of other hosts.
    pub fn set_hosts(&self, hosts: Vec<ClockReading>) {
        *self.hosts.lock() = hosts;
    }

    /// Reads the clock in a record of unknown age. Returns `None` if the record is not recent according to the
    /// store.
    pub fn read_recent(&self, seconds: u64, latest: Instant) -> Option<ClockReading> {
        let ahead = self.store.clock()?.ahead_of(seconds, latest);
        let recent = -TOLERANCE <= ahead && ahead <= TOLERANCE + RECENT as i64;
        recent.then(|| ClockReading {
            seconds,
            earliest: latest.checked_sub(Duration::from_secs(RECENT)).unwrap_or(latest),
            latest,
        })
    }
}

impl ClockCheck {
    /// True if another clock differs from the local one.
    pub fn differs(self) -> bool {
        matches!(self, Self::Differs(_) | Self::Outvoted(_))
    }

    /// Seconds that the local clock is ahead of the others, negative if it is behind, or `None` without others.
    pub fn skew(self) -> Option<i64> {
        match self {
            Self::Alone => None,
            Self::Agrees(ahead) | Self::Differs(ahead) | Self::Outvoted(ahead) => Some(-ahead),
        }
    }
}

fn near(one: i64, other: i64) -> bool {
    one.abs_diff(other) <= TOLERANCE as u64
}

/// Compares the local clock with the store's and those of other hosts, given the seconds by which each is ahead.
fn compare(store: Option<i64>, hosts: impl Iterator<Item = i64> + Clone) -> ClockCheck {
    let nearest = hosts.clone().min_by_key(|ahead| ahead.abs());
    match (store, nearest) {
        (None, None) => ClockCheck::Alone,
        (Some(ahead), _) | (None, Some(ahead)) if near(ahead, 0) => ClockCheck::Agrees(ahead),
        (Some(store), Some(host)) if !near(host, 0) && hosts.clone().any(|ahead| near(ahead, store)) => {
            ClockCheck::Outvoted(store)
        }
        (Some(ahead), _) | (None, Some(ahead)) => ClockCheck::Differs(ahead),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_store_and_another_host_outvote_a_clock() {
        let check = |store, hosts: &[i64]| compare(store, hosts.iter().copied());
        for ahead in [100, -100, 86_400, -86_400, 500 * 86_400, -700 * 86_400] {
            assert_eq!(check(Some(ahead), &[]), ClockCheck::Differs(ahead));
            assert_eq!(check(None, &[ahead]), ClockCheck::Differs(ahead));
            assert_eq!(check(None, &[ahead, ahead]), ClockCheck::Differs(ahead));
            assert_eq!(check(Some(ahead), &[ahead + 5]), ClockCheck::Outvoted(ahead));
            assert_eq!(check(Some(ahead), &[0]), ClockCheck::Differs(ahead));
            assert_eq!(check(Some(ahead), &[ahead, 0]), ClockCheck::Differs(ahead));
            assert_eq!(check(Some(ahead), &[-ahead]), ClockCheck::Differs(ahead));
            // The other host is wrong.
            assert_eq!(check(Some(0), &[ahead]), ClockCheck::Agrees(0));
            assert_eq!(check(None, &[ahead, 0]), ClockCheck::Agrees(0));
        }
        assert_eq!(check(None, &[]), ClockCheck::Alone);
        assert_eq!(check(Some(60), &[]), ClockCheck::Agrees(60));
        assert_eq!(check(Some(61), &[]), ClockCheck::Differs(61));
    }

    #[test]
    fn a_host_without_a_second_clock_uses_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let local = LocalClock::default();
        let store = Store::open(folder.path().to_str().unwrap()).unwrap();
        let clock = Clock::new(local.clone(), Arc::new(store));
        assert_eq!(clock.check(), ClockCheck::Alone);
        let now = clock.now();
        let latest = Instant::now();
        let other = ClockReading {
            seconds: now,
            earliest: latest,
            latest,
        };
        clock.set_hosts(vec![other]);
        for days in [-700, -1, 1, 500] {
            let shift = days * 86_400;
            local.shift(shift);
            assert!(!clock.may_expire());
            assert_eq!(clock.local(), clock.now());
            assert!(clock.earliest() <= now + 60 && now <= clock.latest());
            assert!((clock.check().skew().unwrap() - shift).abs() <= 60);
        }
        local.shift(0);
        assert!(clock.may_expire());
        assert_eq!(clock.read_recent(now, latest), None, "a folder has no clock");
    }
}
