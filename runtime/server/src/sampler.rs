//! How many lines a second go to the host's log of what others cause, and how many were left out. Else who can reach the host fills its disk.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Bounds lines of one kind.
pub(crate) struct Sampler {
    a_second: u32,
    window: Mutex<Option<Window>>,
}

struct Window {
    started: Instant,
    lines: u32,
    left_out: u64,
}

impl Sampler {
    /// So many lines a second.
    pub(crate) const fn new(a_second: u32) -> Self {
        Self {
            a_second,
            window: Mutex::new(None),
        }
    }

    /// Whether a line may be logged, and how many before it were not.
    pub(crate) fn sample(&self) -> Option<Option<u64>> {
        let now = Instant::now();
        let mut state = self.window.lock();
        let window = state.get_or_insert(Window {
            started: now,
            lines: 0,
            left_out: 0,
        });
        if now.duration_since(window.started) >= Duration::from_secs(1) {
            (window.started, window.lines) = (now, 0);
        }
        if window.lines >= self.a_second {
            window.left_out += 1;
            return None;
        }
        window.lines += 1;
        let left_out = std::mem::take(&mut window.left_out);
        Some((left_out > 0).then_some(left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_counted_not_logged() {
        let sampler = Sampler::new(10);
        let logged = (0..1000).filter_map(|_| sampler.sample()).count();
        assert_eq!(logged, 10);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(sampler.sample(), Some(Some(990)));
        assert_eq!(sampler.sample(), Some(None));
    }
}
