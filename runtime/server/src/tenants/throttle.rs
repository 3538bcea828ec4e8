//! Slows down who tries tokens: after a few bad ones from one address, each further one costs twice the wait of the last. A good token is
//! always let in: others at the same address have done nothing.

use frostline_batching::doubled;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Bad tokens from one address that cost nothing: a program with an old token, started again a few times.
const FREE_ATTEMPTS: u32 = 8;

/// The wait after the first bad token beyond those, and the longest.
const WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// An address without a bad token for this long starts afresh.
const RESET_AFTER: Duration = Duration::from_secs(900);

/// How often it is told that somebody is slowed down.
const TELL: Duration = Duration::from_secs(10);

/// Addresses that are remembered. Who has more to try from is slowed down by the size of a token.
const ADDRESSES: usize = 4096;

/// Remembers bad tokens by address.
pub(crate) struct TokenThrottle {
    tried: Cache<IpAddr, BadTokens>,
    told: Mutex<Told>,
}

/// Of addresses that are slowed down: when one was told of last, and how many bad tokens were left out since.
#[derive(Default)]
struct Told {
    at: Option<Instant>,
    left_out: u64,
}

/// What there is to be said of an address that is slowed down.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SlowedDown {
    /// Bad tokens that came from it.
    pub(crate) tried: u32,
    /// Those of any address that nothing was said of.
    pub(crate) left_out: u64,
}

#[derive(Debug, Clone, Copy)]
struct BadTokens {
    count: u32,
    last: Instant,
}

impl TokenThrottle {
    pub(crate) fn new() -> Self {
        Self {
            tried: Cache::new(ADDRESSES),
            told: Mutex::default(),
        }
    }

    /// How long `address` must wait before another bad token of it is answered; `None` for not at all.
    pub(crate) fn remaining_wait(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let bad = self.tried.get(&address)?;
        let beyond = bad.count.checked_sub(FREE_ATTEMPTS + 1)?;
        doubled(WAIT.0, beyond, WAIT.1)
            .checked_sub(now.duration_since(bad.last))
            .filter(|left| !left.is_zero())
    }

    /// A bad token came from `address`. Gives what there is to be said of it, if anything: however many addresses there are, once in
    /// [`TELL`].
    pub(crate) fn record(&self, address: IpAddr, now: Instant) -> Option<SlowedDown> {
        let recent = |bad: &BadTokens| now.duration_since(bad.last) < RESET_AFTER;
        let before = self.tried.get(&address).filter(recent).map_or(0, |bad| bad.count);
        let count = before.saturating_add(1);
        self.tried.insert(address, BadTokens { count, last: now });
        if count <= FREE_ATTEMPTS {
            return None;
        }
        let mut told = self.told.lock();
        if told.at.is_some_and(|at| now.duration_since(at) < TELL) {
            told.left_out += 1;
            return None;
        }
        told.at = Some(now);
        Some(SlowedDown {
            tried: count,
            left_out: std::mem::take(&mut told.left_out),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn a_few_bad_tokens_are_free_and_then_waits_double() {
        let (throttle, now) = (TokenThrottle::new(), Instant::now());
        for _ in 0..FREE_ATTEMPTS {
            throttle.record(HERE, now);
            assert_eq!(throttle.remaining_wait(HERE, now), None);
        }
        for seconds in [1, 2, 4] {
            throttle.record(HERE, now);
            assert_eq!(
                throttle.remaining_wait(HERE, now),
                Some(Duration::from_secs(seconds))
            );
        }
        assert_eq!(
            throttle.remaining_wait(HERE, now + Duration::from_secs(3)),
            Some(Duration::from_secs(1))
        );
        assert_eq!(throttle.remaining_wait(HERE, now + Duration::from_secs(4)), None);
        assert_eq!(
            throttle.remaining_wait(IpAddr::V4(Ipv4Addr::BROADCAST), now),
            None
        );
        for _ in 0..100 {
            throttle.record(HERE, now);
        }
        assert_eq!(throttle.remaining_wait(HERE, now), Some(WAIT.1));
    }

    #[test]
    fn who_is_slowed_down_is_told_of_once_in_a_while() {
        let (throttle, now) = (TokenThrottle::new(), Instant::now());
        let record = |after| throttle.record(HERE, now + after);
        for _ in 0..FREE_ATTEMPTS {
            assert_eq!(record(Duration::ZERO), None);
        }
        let told = |tried, left_out| Some(SlowedDown { tried, left_out });
        assert_eq!(record(Duration::ZERO), told(FREE_ATTEMPTS + 1, 0));
        assert_eq!((record(Duration::ZERO), record(TELL / 2)), (None, None));
        assert_eq!(record(TELL), told(FREE_ATTEMPTS + 4, 2));
    }

    #[test]
    fn time_forgives() {
        let (throttle, now) = (TokenThrottle::new(), Instant::now());
        for _ in 0..20 {
            throttle.record(HERE, now);
        }
        throttle.record(HERE, now + RESET_AFTER);
        assert_eq!(throttle.remaining_wait(HERE, now + RESET_AFTER), None);
    }
}
