use frostline_batching::Backoff;
use std::time::{Duration, Instant};

/// Whether a host is used, and when one that failed is checked again. It is told what happened and when.
#[derive(Debug)]
pub(super) struct Health {
    /// One wait for each failure in a row, each after the one before.
    backoff: Backoff,
    until: Option<Instant>,
    /// When it failed last.
    failed: Option<Instant>,
}

/// How long a host that failed is left alone: longer with every failure in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waits {
    /// After the first failure.
    pub(crate) first: Duration,
    /// At most.
    pub(crate) longest: Duration,
}

impl Default for Waits {
    /// A second, so that a broken connection costs little; a minute at most, so that a host that comes back is soon used again while
    /// a dead one is hardly ever asked.
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(60),
        }
    }
}

impl Health {
    pub(super) fn new(waits: Waits) -> Self {
        Self {
            backoff: Backoff::new(waits.first, waits.longest),
            until: None,
            failed: None,
        }
    }

    /// One that is not used before it was checked, which may be now.
    pub(super) fn joining(waits: Waits) -> Self {
        Self {
            until: Some(Instant::now()),
            ..Self::new(waits)
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.until.is_none()
    }

    /// Whether it failed and may be checked again.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// It failed; says whether it was up until now. Several requests that fail together count once.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        let was_up = self.is_up();
        self.failed = Some(now);
        if was_up || self.is_due(now) {
            self.until = Some(now + self.backoff.wait());
        }
        was_up
    }

    /// It did what it was asked at `begun`; says whether it was down until now. What it was asked before it failed says nothing of how it
    /// is since: a host that stops ends well what runs, and takes nothing new.
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
        let mut health = Health::joining(Waits::default());
        let now = Instant::now();
        assert!(!health.is_up() && health.is_due(now));
        assert!(!health.failed(now) && !health.is_due(now));
        assert!(health.did_well(now) && health.is_up());
    }

    #[test]
    fn a_host_that_fails_is_left_alone_ever_longer_until_it_does_well() {
        let (mut health, mut now) = (Health::new(Waits::default()), Instant::now());
        assert!(health.is_up() && !health.is_due(now));
        let mut most = SECOND;
        for failure in 0..20 {
            most = (most * 2).min(SECOND * 60);
            assert_eq!(health.failed(now), failure == 0);
            // Others that fail meanwhile change nothing.
            assert!(!health.failed(now + SECOND / 2));
            assert!(!health.is_due(now + SECOND * 3 / 4) && !health.is_up());
            now += most;
            assert!(health.is_due(now));
        }
        // What was begun before says nothing.
        assert!(!health.did_well(now - most) && !health.is_up());
        assert!(health.did_well(now));
        assert!(health.is_up() && !health.did_well(now));
        assert!(health.failed(now));
        assert!(health.is_due(now + SECOND * 2));
    }
}
