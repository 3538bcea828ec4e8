use std::time::Duration;

/// Randomized exponential backoff between retries.
///
/// Each wait is drawn between the shortest wait and a bound that doubles with each consecutive failure, up to
/// the longest wait: "full jitter" (Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
/// Because the waits are random, a thousand trainers that lost the same host at the same moment do not return
/// at the same moment. The draws are independent, so the total wait is similar for all clients; dependent
/// draws ("decorrelated jitter") often stay short.
///
/// This type contains no clock. The caller implements the wait.
#[derive(Debug, Clone)]
pub struct Backoff {
    shortest: Duration,
    longest: Duration,
    /// Consecutive failures.
    failures: u32,
    random: fastrand::Rng,
}

impl Backoff {
    /// Creates a backoff with waits between `shortest` and `longest` and a random seed.
    pub fn new(shortest: Duration, longest: Duration) -> Self {
        Self::seeded(shortest, longest, fastrand::u64(..))
    }

    /// Creates a backoff that draws the same waits for the same seed.
    pub fn seeded(shortest: Duration, longest: Duration, seed: u64) -> Self {
        Self {
            shortest,
            longest,
            failures: 0,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Returns the wait after one more failure.
    pub fn wait(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let most = doubled(self.shortest, self.failures, self.longest);
        self.between(self.shortest, most)
    }

    /// Returns a random wait from `wait` to 1.25 times `wait`. Use this if a server requests the same wait
    /// from all clients.
    pub fn asked(&mut self, wait: Duration) -> Duration {
        self.between(wait, wait.saturating_add(wait / 4))
    }

    /// Treats the next failure as the first one.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let room = most.saturating_sub(least);
        least.saturating_add(room.mul_f64(self.random.f64()))
    }
}

/// Returns `first` doubled `times` times, limited to `longest`. For limits and penalties, which need no
/// jitter.
pub fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(times)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn waits(seed: u64) -> Vec<Duration> {
        let mut backoff = Backoff::seeded(SECOND, SECOND * 60, seed);
        (0..20).map(|_| backoff.wait()).collect()
    }

    #[test]
    fn waits_grow_within_their_bounds() {
        let all: Vec<_> = (0..1000).map(waits).collect();
        let mean = |index: usize| all.iter().map(|waits| waits[index].as_secs_f64()).sum::<f64>() / 1000.0;
        // Halfway between 1 s and 2, 4 and 60 s.
        for (index, expected) in [(0, 1.5), (1, 2.5), (19, 30.5)] {
            let mean = mean(index);
            assert!((mean / expected - 1.0).abs() < 0.1, "{mean} for {expected}");
        }
        let mut all = all.into_iter().flatten();
        assert!(all.all(|wait| (SECOND..=SECOND * 60).contains(&wait)));
    }

    #[test]
    fn simultaneous_failures_are_retried_at_different_times() {
        assert_eq!(waits(7), waits(7));
        let mut firsts: Vec<Duration> = (0..1000).map(|seed| waits(seed)[0]).collect();
        firsts.sort();
        // The waits are spread evenly over a second, about 50 per interval of 50 ms.
        let crowd = |start: &Duration| {
            let end = *start + SECOND / 20;
            firsts.iter().filter(|wait| (*start..end).contains(wait)).count()
        };
        assert!(firsts.iter().map(crowd).max() < Some(100));
        let unseeded = || Backoff::new(SECOND, SECOND * 60).wait();
        assert!((0..10).any(|_| unseeded() != unseeded()));
    }

    #[test]
    fn success_resets_the_backoff_and_requested_waits_are_lower_bounds() {
        let mut backoff = Backoff::seeded(SECOND, SECOND * 60, 1);
        for _ in 0..20 {
            backoff.wait();
        }
        backoff.reset();
        assert!(backoff.wait() <= SECOND * 2);
        for _ in 0..100 {
            assert!((SECOND * 8..=SECOND * 10).contains(&backoff.asked(SECOND * 8)));
        }
        let mut endless = Backoff::seeded(Duration::MAX, Duration::MAX, 1);
        assert_eq!(
            (endless.wait(), endless.asked(Duration::MAX)),
            (Duration::MAX, Duration::MAX)
        );
    }

    #[test]
    fn doubling_ends_at_the_longest() {
        let seconds = |times| doubled(SECOND, times, SECOND * 60).as_secs();
        assert_eq!([0, 1, 5, 6, u32::MAX].map(seconds), [1, 2, 32, 60, 60]);
    }
}
