//! Clocks of stores, read from the `Date` header of their answers. `object_store` drops this header.

use chrono::DateTime;
use http::HeaderMap;
use http::header::DATE;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A reading of a remote clock. The clock showed the time at an unknown instant between `earliest` and `latest`, so
/// a slow answer makes the reading less precise, but not wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// Unix time in seconds.
    pub seconds: u64,
    /// Start of the interval.
    pub earliest: Instant,
    /// End of the interval.
    pub latest: Instant,
}

impl ClockReading {
    /// Returns the seconds by which the remote clock is ahead of a clock that shows `seconds` at the instant `at`,
    /// negative if it is behind, and 0 if both may show the same time.
    pub fn ahead_of(&self, seconds: u64, at: Instant) -> i64 {
        let local = Duration::from_secs(seconds);
        let lowest =
            Duration::from_secs(self.seconds).saturating_add(at.saturating_duration_since(self.latest));
        // Both clocks are rounded down to seconds.
        let highest = Duration::from_secs(self.seconds.saturating_add(1))
            .saturating_add(at.saturating_duration_since(self.earliest));
        match (lowest.checked_sub(local), local.checked_sub(highest)) {
            (Some(ahead), _) if ahead > Duration::from_secs(1) => whole_seconds(ahead),
            (_, Some(behind)) => -whole_seconds(behind),
            _ => 0,
        }
    }
}

fn whole_seconds(difference: Duration) -> i64 {
    i64::try_from(difference.as_secs()).unwrap_or(i64::MAX)
}

/// The latest reading of a store's clock.
#[derive(Debug, Clone, Default)]
pub(crate) struct AnswerDates(Arc<Mutex<Option<ClockReading>>>);

impl AnswerDates {
    /// Records the date of an answer to a request that was sent at `sent`. Answers without a valid date are ignored.
    pub(crate) fn record(&self, headers: &HeaderMap, sent: Instant) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| DateTime::parse_from_rfc2822(date).ok());
        let Some(seconds) = date.and_then(|date| u64::try_from(date.timestamp()).ok()) else {
            return;
        };
        *self.0.lock() = Some(ClockReading {
            seconds,
            earliest: sent,
            latest: Instant::now(),
        });
    }

    pub(crate) fn latest(&self) -> Option<ClockReading> {
        *self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_an_answer_is_read() {
        let dates = AnswerDates::default();
        let sent = Instant::now();
        let mut headers = HeaderMap::new();
        for wrong in ["", "yesterday", "Thu, 26 Nov 1026 00:00:00 GMT"] {
            headers.insert(DATE, wrong.parse().unwrap());
            dates.record(&headers, sent);
            assert_eq!(dates.latest(), None, "{wrong}");
        }
        headers.insert(DATE, "Thu, 26 Nov 2026 00:00:00 GMT".parse().unwrap());
        dates.record(&headers, sent);
        let read = dates.latest().unwrap();
        assert_eq!((read.seconds, read.earliest), (1_795_651_200, sent));
    }

    #[test]
    fn a_slow_answer_makes_no_clock_wrong() {
        let earliest = Instant::now();
        let after = |seconds| earliest + Duration::from_secs(seconds);
        let reading = ClockReading {
            seconds: 1000,
            earliest,
            latest: after(30),
        };
        for same in [1000, 1015, 1031] {
            assert_eq!(reading.ahead_of(same, after(30)), 0, "{same}");
        }
        assert_eq!(reading.ahead_of(900, after(30)), 100);
        assert_eq!(reading.ahead_of(1131, after(30)), -100);
        assert_eq!(
            reading.ahead_of(1131, after(130)),
            0,
            "time passes on both clocks"
        );
    }
}
