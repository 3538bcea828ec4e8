/// Formats seconds since 1970 as a date and time in UTC, for display. JSON output keeps the number.
pub fn utc(seconds: u64) -> String {
    let at = i64::try_from(seconds).ok();
    let at = at.and_then(|seconds| chrono::DateTime::from_timestamp(seconds, 0));
    at.map_or_else(
        || seconds.to_string(),
        |at| at.format("%Y-%m-%d %H:%M:%S").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn times_read_well() {
        assert_eq!(utc(1_795_324_200), "2026-11-22 05:10:00");
        assert_eq!(utc(u64::MAX), u64::MAX.to_string());
    }
}
