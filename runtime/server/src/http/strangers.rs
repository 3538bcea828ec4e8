//! Limits on log lines about requests without a valid token. Without them, every client that can reach the
//! port could fill the disk.

/// Maximum log lines per second. This is enough to notice scans and limits the log to 100 MB per day.
pub(super) const LINES_PER_SECOND: u32 = 10;

/// Maximum bytes of client text in a log line. Routes and names are shorter.
const MAX_TEXT_BYTES: usize = 200;

/// Truncates a text to the maximum length for log lines.
pub(super) fn truncate(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_TEXT_BYTES))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(truncate(&"ü".repeat(1000)).len(), MAX_TEXT_BYTES);
        assert_eq!(truncate("/v1/models"), "/v1/models");
    }
}
