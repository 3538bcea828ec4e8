//! Slows down who tries tokens: after a few bad ones from one address, each further one costs twice the wait of the last. A good token is
//! always let in: others at the same address have done nothing.

use frostline_batching::doubled;
use quick_cache::sync::Cache;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Bad tokens from one address that cost nothing: a program with an old token, started again a few times.
const FREE: u32 = 8;

/// The wait after the first bad token beyond those, and the longest.
const WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// An address without a bad token for this long starts afresh.
const FORGOTTEN: Duration = Duration::from_secs(900);

/// Addresses that are remembered. Who has more to try from is slowed down by the size of a token.
const ADDRESSES: usize = 4096;

/// Remembers bad tokens by address.
pub(crate) struct Bouncer {
    tried: Cache<IpAddr, BadTokens>,
}

#[derive(Debug, Clone, Copy)]
struct BadTokens {
    count: u32,
    last: Instant,
}

impl Bouncer {
    pub(crate) fn new() -> Self {
        Self {
            tried: Cache::new(ADDRESSES),
        }
    }

    /// How long `address` must wait before another bad token of it is answered; `None` for not at all.
    pub(crate) fn wait(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let bad = self.tried.get(&address)?;
        let beyond = bad.count.checked_sub(FREE + 1)?;
        doubled(WAIT.0, beyond, WAIT.1)
            .checked_sub(now.duration_since(bad.last))
            .filter(|left| !left.is_zero())
    }

    /// A bad token came from `address`.
    pub(crate) fn bad(&self, address: IpAddr, now: Instant) {
        let recent = |bad: &BadTokens| now.duration_since(bad.last) < FORGOTTEN;
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
        let (bouncer, now) = (Bouncer::new(), Instant::now());
        for _ in 0..FREE {
            bouncer.bad(HERE, now);
            assert_eq!(bouncer.wait(HERE, now), None);
        }
        for seconds in [1, 2, 4] {
            bouncer.bad(HERE, now);
            assert_eq!(bouncer.wait(HERE, now), Some(Duration::from_secs(seconds)));
        }
        assert_eq!(
            bouncer.wait(HERE, now + Duration::from_secs(3)),
            Some(Duration::from_secs(1))
        );
        assert_eq!(bouncer.wait(HERE, now + Duration::from_secs(4)), None);
        assert_eq!(bouncer.wait(IpAddr::V4(Ipv4Addr::BROADCAST), now), None);
        for _ in 0..100 {
            bouncer.bad(HERE, now);
        }
        assert_eq!(bouncer.wait(HERE, now), Some(WAIT.1));
    }

    #[test]
    fn time_forgives() {
        let (bouncer, now) = (Bouncer::new(), Instant::now());
        for _ in 0..20 {
            bouncer.bad(HERE, now);
        }
        bouncer.bad(HERE, now + FORGOTTEN);
        assert_eq!(bouncer.wait(HERE, now + FORGOTTEN), None);
    }
}
