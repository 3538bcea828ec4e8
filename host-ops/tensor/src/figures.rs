/// Bytes for people, in powers of ten: `28.1 KB`.
pub fn shown_bytes(count: f64) -> String {
    let units = ["B", "KB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (count, 0);
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let name = units.get(unit).copied().unwrap_or_default();
    if unit == 0 {
        format!("{value:.0} {name}")
    } else {
        format!("{value:.1} {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::shown_bytes;

    #[test]
    fn bytes_read_well() {
        let cases = [
            (0.0, "0 B"),
            (999.0, "999 B"),
            (2048.0, "2.0 KB"),
            (28_100.0, "28.1 KB"),
            (999_600.0, "1.0 MB"),
            (1.5e9, "1.5 GB"),
            (3e16, "30000.0 TB"),
        ];
        for (count, text) in cases {
            assert_eq!(shown_bytes(count), text);
        }
    }
}
