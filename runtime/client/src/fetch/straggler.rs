use frostline_primitives::{Lock, doubled};
use frostline_wire::Split;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// When to give up a silent request and ask another host. Without another host, only the deadlines of the
/// connection apply, because the same host would start the work from the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StragglerPolicy {
    /// Multiple of the median silence.
    pub(crate) median_factor: u32,
    /// Minimum limit, because the other host has to start from the beginning.
    pub(crate) min_limit: Duration,
    /// Number of requests required for a median.
    pub(crate) min_history: usize,
}

impl Default for StragglerPolicy {
    /// Healthy requests that wait in queues or share links rarely exceed four times the median. Pauses below
    /// two seconds, such as a compilation on the host, do not justify duplicate work.
    fn default() -> Self {
        Self {
            median_factor: 4,
            min_limit: Duration::from_secs(2),
            min_history: 5,
        }
    }
}

/// Number of requests in the history. A few stragglers do not affect the median of this number.
const REMEMBERED: usize = 15;

/// Detects stragglers from the longest silence of each recent request (Dean and Barroso, "The tail at scale",
/// CACM 2013). The history is separate for each split, because deeper prefixes are slower. Silence is
/// measured from the request to the first bytes of the answer, and from one piece of the answer to the next.
/// This type does not read a clock.
pub(super) struct StragglerDetector {
    policy: StragglerPolicy,
    silences: Lock<HashMap<Split, VecDeque<Duration>>>,
}

impl StragglerDetector {
    pub(super) fn new(policy: StragglerPolicy) -> Self {
        Self {
            policy,
            silences: Lock::default(),
        }
    }

    /// Records the longest silence of a finished or timed-out request at `split`.
    pub(super) fn record(&self, split: &Split, silence: Duration) {
        let mut all = self.silences.lock();
        let recent = all.entry(split.clone()).or_default();
        if recent.len() == REMEMBERED {
            recent.pop_front();
        }
        recent.push_back(silence);
    }

    /// Returns the silence limit for a request at `split`. The limit doubles with every previous timeout
    /// (`given_up`). Returns `None` if the history is too short.
    pub(super) fn limit(&self, split: &Split, given_up: u32) -> Option<Duration> {
        let usual = self.median(split)?;
        let StragglerPolicy {
            median_factor,
            min_limit,
            ..
        } = self.policy;
        let patience = usual.saturating_mul(median_factor).max(min_limit);
        Some(doubled(patience, given_up, Duration::MAX))
    }

    fn median(&self, split: &Split) -> Option<Duration> {
        let all = self.silences.lock();
        let mut sorted: Vec<Duration> = all.get(split)?.iter().copied().collect();
        sorted.sort_unstable();
        let median = sorted.get(sorted.len() / 2).copied();
        median.filter(|_| sorted.len() >= self.policy.min_history)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn seen(silences: &[u32]) -> StragglerDetector {
        let patience = StragglerDetector::new(StragglerPolicy::default());
        silences
            .iter()
            .for_each(|seconds| patience.record(&Split::None, SECOND * *seconds));
        patience
    }

    #[test]
    fn a_request_is_given_up_long_after_others_would_have_answered() {
        let patience = seen(&[2, 1, 3, 100, 2]);
        assert_eq!(patience.limit(&Split::None, 0), Some(SECOND * 8));
        let quick = seen(&[0; 5]);
        assert_eq!(quick.limit(&Split::None, 0), Some(SECOND * 2));
    }

    #[test]
    fn patience_doubles_so_that_a_slow_request_is_let_be_in_the_end() {
        let patience = seen(&[0; 15]);
        let limits = (0..5).filter_map(|given_up| patience.limit(&Split::None, given_up));
        let limits: Vec<u64> = limits.map(|limit| limit.as_secs()).collect();
        assert_eq!(limits, [2, 4, 8, 16, 32]);
        assert!(patience.limit(&Split::None, 1000) > Some(SECOND * 100_000));
    }

    #[test]
    fn nothing_is_given_up_before_enough_was_seen_of_its_kind() {
        assert_eq!(seen(&[1; 4]).limit(&Split::None, 0), None);
        assert_eq!(seen(&[1; 5]).limit(&Split::Input, 0), None);
    }

    #[test]
    fn a_host_that_has_become_slower_is_usual_after_a_while() {
        let patience = seen(&[1; 15]);
        (0..8).for_each(|_| patience.record(&Split::None, SECOND * 5));
        assert_eq!(patience.limit(&Split::None, 0), Some(SECOND * 20));
        (0..1000).for_each(|_| patience.record(&Split::None, SECOND));
        assert_eq!(patience.limit(&Split::None, 0), Some(SECOND * 4));
    }
}
