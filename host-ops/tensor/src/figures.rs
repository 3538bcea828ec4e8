/// Formats a number of bytes for people, with decimal units (`28.1 KB`).
pub fn format_bytes(count: f64) -> String {
    let units = ["B", "KB", "MB", "GB", "TB"];
    let mut value = count;
    let mut unit = 0;
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

/// Formats a number for people with three or more significant digits and without an exponent (`0.00123`,
/// `12.3`, `4567`). It prints up to 12 decimals.
pub fn format_number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let decimals = (2.0 - value.abs().log10().floor()).clamp(0.0, 12.0);
    format!("{value:.*}", decimals as usize)
}

#[cfg(test)]
mod tests {
    use super::{format_bytes, format_number};

    #[test]
    fn numbers_have_three_digits() {
        let cases = [
            (0.0, "0"),
            (0.001_234, "0.00123"),
            (1.0, "1.00"),
            (12.34, "12.3"),
            (4567.8, "4568"),
            (-0.5, "-0.500"),
        ];
        for (value, shown) in cases {
            assert_eq!(format_number(value), shown);
        }
    }

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
            assert_eq!(format_bytes(count), text);
        }
    }
}
