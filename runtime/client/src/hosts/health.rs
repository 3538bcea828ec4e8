use frostline_primitives::Backoff;
use std::time::{Duration, Instant};

/// Tracks the availability of a host and schedules checks after failures. The caller provides the current
/// time.
#[derive(Debug)]
pub(super) struct Health {
    /// Wait after each consecutive failure.
    backoff: Backoff,
    until: Option<Instant>,
    /// Last failure.
    failed: Option<Instant>,
}

/// Bounds for the wait before a failed host is checked. Waits grow with consecutive failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecheckWaits {
    /// Wait after the first failure.
    pub(crate) first: Duration,
    /// Maximum wait.
    pub(crate) longest: Duration,
}

impl Default for RecheckWaits {
    /// The initial wait of 1 s limits the cost of broken connections. With the maximum of 60 s, recovered
    /// hosts are used again soon and dead hosts are rarely asked.
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(60),
        }
    }
}

impl Health {
    pub(super) fn new(waits: RecheckWaits) -> Self {
        Self {
            backoff: Backoff::new(waits.first, waits.longest),
            until: None,
            failed: None,
        }
    }

    /// Creates the state of a host that must pass a check before use. This check is due immediately.
    pub(super) fn joining(waits: RecheckWaits) -> Self {
        Self {
            until: Some(Instant::now()),
            ..Self::new(waits)
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.until.is_none()
    }

    /// Returns true if the host failed and may be checked again.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// Records a failure. Returns true if the host was available before. Concurrent failures count once.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        let was_up = self.is_up();
        self.failed = Some(now);
        if was_up || self.is_due(now) {
            self.until = Some(now + self.backoff.wait());
        }
        was_up
    }

    /// Records a successful request that began at `begun`. Returns true if the host was unavailable before.
    /// Requests that began before the last failure are ignored, because a draining host completes running
    /// requests but accepts no new ones.
    pub(super) fn did_well(&mut self, begun: Instant) -> bool {
        if self.failed.is_some_and(|failed| begun < failed) {
            return false;
        }
        self.backoff.reset();
        self.until.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_host_that_joins_is_checked_first() {
        let mut health = Health::joining(RecheckWaits::default());
        let now = Instant::now();
        assert!(!health.is_up() && health.is_due(now));
        assert!(!health.failed(now) && !health.is_due(now));
        assert!(health.did_well(now) && health.is_up());
    }

    #[test]
    fn a_host_that_fails_is_left_alone_ever_longer_until_it_does_well() {
        let mut health = Health::new(RecheckWaits::default());
        let mut now = Instant::now();
        assert!(health.is_up() && !health.is_due(now));
        let mut most = SECOND;
        for failure in 0..20 {
            most = (most * 2).min(SECOND * 60);
            assert_eq!(health.failed(now), failure == 0);
            // Concurrent failures have no effect.
            assert!(!health.failed(now + SECOND / 2));
            assert!(!health.is_due(now + SECOND * 3 / 4) && !health.is_up());
            now += most;
            assert!(health.is_due(now));
        }
        // Requests that began earlier are ignored.
        assert!(!health.did_well(now - most) && !health.is_up());
        assert!(health.did_well(now));
        assert!(health.is_up() && !health.did_well(now));
        assert!(health.failed(now));
        assert!(health.is_due(now + SECOND * 2));
    }
}
