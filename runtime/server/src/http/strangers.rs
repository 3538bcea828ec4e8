//! What is logged of strangers' requests: so many lines a second, and how many were left out. Else whoever can reach the port fills the disk.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Lines a second: enough to see who probes the host, and some 100 MB a day at most.
const A_SECOND: u32 = 10;

/// The longest text of a stranger's that is logged; routes and names are shorter.
const LONGEST: usize = 200;

/// Counts lines.
#[derive(Default)]
pub(super) struct Sampler(Mutex<Option<Window>>);

struct Window {
    started: Instant,
    lines: u32,
    left_out: u64,
}

impl Sampler {
    /// Whether a line may be logged, and how many before it were not.
    pub(super) fn sample(&self) -> Option<u64> {
        let now = Instant::now();
        let mut state = self.0.lock();
        let window = state.get_or_insert(Window {
            started: now,
            lines: 0,
            left_out: 0,
        });
        if now.duration_since(window.started) >= Duration::from_secs(1) {
            (window.started, window.lines) = (now, 0);
        }
        if window.lines >= A_SECOND {
            window.left_out += 1;
            return None;
        }
        window.lines += 1;
        Some(std::mem::take(&mut window.left_out))
    }
}

/// The beginning of a text, as much of it as is logged.
pub(super) fn truncate(text: &str) -> &str {
    text.get(..text.floor_char_boundary(LONGEST)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_counted_not_logged() {
        let sampler = Sampler::default();
        let logged = (0..1000).filter_map(|_| sampler.sample()).count();
        assert_eq!(logged, A_SECOND as usize);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(sampler.sample(), Some(1000 - u64::from(A_SECOND)));
        assert_eq!(sampler.sample(), Some(0));
        assert_eq!(truncate(&"ü".repeat(1000)).len(), LONGEST);
        assert_eq!(truncate("/v1/models"), "/v1/models");
    }
}
