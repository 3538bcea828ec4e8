//! Slows down who tries tokens: after a few bad ones from one address, each further one costs twice the wait of the last. A good token is
//! always let in: others at the same address have done nothing.

use frostline_batching::doubled;
use quick_cache::sync::Cache;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Bad tokens from one address that cost nothing: a program with an old token, started again a few times.
const FREE_ATTEMPTS: u32 = 8;

/// The wait after the first bad token beyond those, and the longest.
const WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// An address without a bad token for this long starts afresh.
const RESET_AFTER: Duration = Duration::from_secs(900);

/// Addresses that are remembered. Who has more to try from is slowed down by the size of a token.
const ADDRESSES: usize = 4096;

/// Remembers bad tokens by address.
pub(crate) struct TokenThrottle {
    tried: Cache<IpAddr, BadTokens>,
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

    /// A bad token came from `address`.
    pub(crate) fn record(&self, address: IpAddr, now: Instant) {
        let recent = |bad: &BadTokens| now.duration_since(bad.last) < RESET_AFTER;
        let before = self.tried.get(&address).filter(recent).map_or(0, |bad| bad.count);
        let count = before.saturating_add(1);
        self.tried.insert(address, BadTokens { count, last: now });
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
    fn time_forgives() {
        let (throttle, now) = (TokenThrottle::new(), Instant::now());
        for _ in 0..20 {
            throttle.record(HERE, now);
        }
        throttle.record(HERE, now + RESET_AFTER);
        assert_eq!(throttle.remaining_wait(HERE, now + RESET_AFTER), None);
    }
}
