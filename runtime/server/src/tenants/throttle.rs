//! Slows down clients that guess tokens. After [`FREE_ATTEMPTS`] bad tokens from an address, any further bad
//! token doubles the wait. A valid token is always accepted, because other clients may share the address.

use crate::sampler::LogRateLimit;
use frostline_primitives::doubled;
use quick_cache::sync::Cache;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Number of bad tokens per address to answer immediately. A program with an outdated token may be restarted
/// a few times.
const FREE_ATTEMPTS: u32 = 8;

/// The first wait after [`FREE_ATTEMPTS`] and the maximum wait.
const WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// An address without bad tokens for this long is treated as new.
const RESET_AFTER: Duration = Duration::from_secs(900);

/// Minimum time between two log lines about throttled addresses.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Number of tracked addresses. A client with more addresses still has to guess a secret of 256 bits.
const ADDRESSES: usize = 4096;

/// Bad tokens by address.
pub(crate) struct TokenThrottle {
    tried: Cache<IpAddr, BadTokens>,
    reports: LogRateLimit,
}

/// A report about a throttled address.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ThrottleReport {
    /// Bad tokens from this address.
    pub(crate) tried: u32,
    /// Bad tokens from throttled addresses since the last report, if any.
    pub(crate) left_out: Option<u64>,
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
            reports: LogRateLimit::within(REPORT_INTERVAL, 1),
        }
    }

    /// Returns how long `address` must wait before its next bad token is answered, or `None` if it need not
    /// wait.
    pub(crate) fn remaining_wait(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let bad = self.tried.get(&address)?;
        let beyond = bad.count.checked_sub(FREE_ATTEMPTS + 1)?;
        doubled(WAIT.0, beyond, WAIT.1)
            .checked_sub(now.duration_since(bad.last))
            .filter(|left| !left.is_zero())
    }

    /// Records a bad token from `address`. Returns a report for the log if the address is throttled, at most
    /// once per [`REPORT_INTERVAL`] for all addresses together.
    pub(crate) fn record(&self, address: IpAddr, now: Instant) -> Option<ThrottleReport> {
        let before = self
            .tried
            .get(&address)
            .filter(|bad| now.duration_since(bad.last) < RESET_AFTER)
            .map_or(0, |bad| bad.count);
        let count = before.saturating_add(1);
        self.tried.insert(address, BadTokens { count, last: now });
        if count <= FREE_ATTEMPTS {
            return None;
        }
        let left_out = self.reports.sample_at(now)?;
        Some(ThrottleReport {
            tried: count,
            left_out,
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
        let throttle = TokenThrottle::new();
        let now = Instant::now();
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
        let throttle = TokenThrottle::new();
        let now = Instant::now();
        let record = |after| throttle.record(HERE, now + after);
        for _ in 0..FREE_ATTEMPTS {
            assert_eq!(record(Duration::ZERO), None);
        }
        let told = |tried, left_out| Some(ThrottleReport { tried, left_out });
        assert_eq!(record(Duration::ZERO), told(FREE_ATTEMPTS + 1, None));
        assert_eq!(
            (record(Duration::ZERO), record(REPORT_INTERVAL / 2)),
            (None, None)
        );
        assert_eq!(record(REPORT_INTERVAL), told(FREE_ATTEMPTS + 4, Some(2)));
    }

    #[test]
    fn a_quiet_address_is_not_throttled() {
        let throttle = TokenThrottle::new();
        let now = Instant::now();
        for _ in 0..20 {
            throttle.record(HERE, now);
        }
        throttle.record(HERE, now + RESET_AFTER);
        assert_eq!(throttle.remaining_wait(HERE, now + RESET_AFTER), None);
    }
}
