//! What is logged of strangers' requests: so many lines a second, and how many were left out. Else whoever can reach the port fills the disk.

/// Lines a second: enough to see who probes the host, and some 100 MB a day at most.
pub(super) const A_SECOND: u32 = 10;

/// The longest text of a stranger's that is logged; routes and names are shorter.
const LONGEST: usize = 200;

/// The beginning of a text, as much of it as is logged.
pub(super) fn truncate(text: &str) -> &str {
    text.get(..text.floor_char_boundary(LONGEST)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(truncate(&"ü".repeat(1000)).len(), LONGEST);
        assert_eq!(truncate("/v1/models"), "/v1/models");
    }
}
