use chrono::{DateTime, Days, NaiveDate};
use std::fmt;

/// A day in UTC. The formatted names sort in the same order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(NaiveDate);

impl Day {
    /// Returns the day that contains a time in seconds since 1970.
    pub fn at(seconds: u64) -> Self {
        let time = i64::try_from(seconds)
            .ok()
            .and_then(|seconds| DateTime::from_timestamp(seconds, 0));
        Self(time.unwrap_or_default().date_naive())
    }

    /// Parses a name such as `2026-11-26`.
    pub fn parse(name: &str) -> Option<Self> {
        NaiveDate::parse_from_str(name, "%Y-%m-%d").ok().map(Self)
    }

    /// Returns the date `days` earlier.
    pub fn before(self, days: u64) -> Self {
        Self(self.0.checked_sub_days(Days::new(days)).unwrap_or_default())
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.format("%Y-%m-%d").fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_what_its_name_says() {
        let day = Day::at(1_795_651_199);
        assert_eq!(day.to_string(), "2026-11-25");
        assert_eq!(Day::at(1_795_651_200).to_string(), "2026-11-26");
        assert_eq!(Day::parse("2026-11-25"), Some(day));
        assert_eq!(day.before(25).to_string(), "2026-10-31");
        for wrong in ["", "today", "2026-13-01", "2026-11-26x"] {
            assert_eq!(Day::parse(wrong), None, "{wrong}");
        }
    }
}
