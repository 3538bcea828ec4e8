use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the current time of this machine in seconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
