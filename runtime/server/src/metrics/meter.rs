//! Rate of events over the last seconds.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Length of the window in seconds. It covers batches that arrive every few seconds and still reflects the
/// current load.
const SECONDS: usize = 10;

/// Counter of events that returns the recent rate per second.
pub(crate) struct RateMeter(Mutex<RateWindow>);

struct RateWindow {
    start: Instant,
    /// Second of the newest count, relative to `start`.
    newest: u64,
    counts: [u64; SECONDS],
}

impl Default for RateMeter {
    fn default() -> Self {
        Self::new(Instant::now())
    }
}

impl RateMeter {
    fn new(start: Instant) -> Self {
        Self(Mutex::new(RateWindow {
            start,
            newest: 0,
            counts: [0; SECONDS],
        }))
    }

    /// Counts `events` now.
    pub(crate) fn count(&self, events: u64) {
        self.count_at(Instant::now(), events);
    }

    /// Returns the events per second in the window, or since the start if that is shorter.
    pub(crate) fn per_second(&self) -> f64 {
        self.per_second_at(Instant::now())
    }

    fn count_at(&self, now: Instant, events: u64) {
        let mut state = self.0.lock();
        state.advance(now);
        let slot = slot(state.newest);
        if let Some(count) = state.counts.get_mut(slot) {
            *count = count.saturating_add(events);
        }
    }

    fn per_second_at(&self, now: Instant) -> f64 {
        let mut state = self.0.lock();
        state.advance(now);
        let window = now
            .saturating_duration_since(state.start)
            .min(Duration::from_secs(SECONDS as u64));
        state.counts.iter().sum::<u64>() as f64 / window.as_secs_f64().max(1.0)
    }
}

impl RateWindow {
    /// Moves the window to `now` and clears the seconds that have passed since the last count.
    fn advance(&mut self, now: Instant) {
        let second = now.saturating_duration_since(self.start).as_secs();
        let passed = second.saturating_sub(self.newest).min(SECONDS as u64);
        for step in 0..passed {
            if let Some(count) = self.counts.get_mut(slot(second - step)) {
                *count = 0;
            }
        }
        self.newest = self.newest.max(second);
    }
}

fn slot(second: u64) -> usize {
    usize::try_from(second % SECONDS as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let start = Instant::now();
        let meter = RateMeter::new(start);
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        meter.count_at(at(0), 100);
        assert_eq!(meter.per_second_at(at(0)), 100.0);
        assert_eq!(meter.per_second_at(at(5)), 20.0);
        assert_eq!(meter.per_second_at(at(9)), 100.0 / 9.0);
        assert_eq!(meter.per_second_at(at(10)), 0.0);
        for second in 20..40 {
            meter.count_at(at(second), 30);
        }
        assert_eq!(meter.per_second_at(at(39)), 30.0);
        assert_eq!(meter.per_second_at(at(1000)), 0.0);
    }
}
