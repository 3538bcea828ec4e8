//! Rate limit for log lines that others cause, with a count of the skipped lines. Without a limit, every
//! client could fill the disk.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Limits the rate of log lines.
pub(crate) struct LogRateLimit {
    lines: u32,
    interval: Duration,
    window: Mutex<Option<LogWindow>>,
}

struct LogWindow {
    started: Instant,
    lines: u32,
    left_out: u64,
}

impl LogRateLimit {
    /// Creates a limit of `lines` lines per second.
    pub(crate) const fn new(lines: u32) -> Self {
        Self::within(Duration::from_secs(1), lines)
    }

    /// Creates a limit of `lines` lines per `interval`.
    pub(crate) const fn within(interval: Duration, lines: u32) -> Self {
        Self {
            lines,
            interval,
            window: Mutex::new(None),
        }
    }

    /// Returns `None` if the line should be skipped. Otherwise returns the number of lines skipped before
    /// this one, or `Some(None)` if there were none.
    pub(crate) fn sample(&self) -> Option<Option<u64>> {
        self.sample_at(Instant::now())
    }

    /// Same as [`Self::sample`] for a line at `now`.
    pub(crate) fn sample_at(&self, now: Instant) -> Option<Option<u64>> {
        let mut state = self.window.lock();
        let window = state.get_or_insert(LogWindow {
            started: now,
            lines: 0,
            left_out: 0,
        });
        if now.duration_since(window.started) >= self.interval {
            (window.started, window.lines) = (now, 0);
        }
        if window.lines >= self.lines {
            window.left_out += 1;
            return None;
        }
        window.lines += 1;
        let left_out = std::mem::take(&mut window.left_out);
        Some((left_out > 0).then_some(left_out))
    }

    #[cfg(test)]
    pub(crate) fn left_out(&self) -> u64 {
        self.window.lock().as_ref().map_or(0, |window| window.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_beyond_the_limit_are_counted() {
        let sampler = LogRateLimit::new(10);
        let logged = (0..1000).filter_map(|_| sampler.sample()).count();
        assert_eq!(logged, 10);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(sampler.sample(), Some(Some(990)));
        assert_eq!(sampler.sample(), Some(None));
    }
}
