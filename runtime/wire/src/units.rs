//! Parsers for sizes and durations.

/// Parses a number of bytes, optionally with the unit KiB, MiB or GiB.
///
/// # Errors
/// Returns a message if `text` is not a valid size.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let at = text
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let unit = match unit {
        "" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1_u64 << 30),
        _ => None,
    };
    let number: Option<u64> = number.parse().ok();
    let bytes = number
        .zip(unit)
        .and_then(|(number, unit)| number.checked_mul(unit));
    bytes.ok_or_else(|| {
        format!(
            "invalid size {text:?}: use a number of bytes, optionally with KiB, MiB or GiB (example: 4GiB)"
        )
    })
}

/// Parses a duration with the unit s, m, h or d, and returns seconds.
///
/// # Errors
/// Returns a message if `text` is not a valid duration.
pub fn parse_seconds(text: &str) -> Result<u64, String> {
    seconds(text)
        .ok_or_else(|| format!("invalid duration {text:?}: use a number with s, m, h or d (example: 90d)"))
}

fn seconds(text: &str) -> Option<u64> {
    let at = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = text.split_at(at);
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    let number: u64 = number.parse().ok()?;
    number.checked_mul(unit)
}

/// Parses a duration like [`parse_seconds`]. The default unit is seconds.
///
/// # Errors
/// Returns a message if `text` is not a valid duration.
pub fn parse_seconds_or_number(text: &str) -> Result<u64, String> {
    text.parse().or_else(|_| parse_seconds(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_units() {
        assert_eq!((parse_size("3KiB"), parse_size("7")), (Ok(3072), Ok(7)));
        assert_eq!(parse_seconds("90d"), Ok(90 * 86_400));
        assert_eq!(
            (parse_seconds("0s"), parse_seconds("5m"), parse_seconds("2h")),
            (Ok(0), Ok(300), Ok(7200))
        );
        assert_eq!(
            (parse_seconds_or_number("60"), parse_seconds_or_number("60s")),
            (Ok(60), Ok(60))
        );
        for bad in [
            "",
            "5",
            "s",
            "5 s",
            "-5s",
            "5w",
            "99999999999999999999d",
            "18446744073709551615m",
        ] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
        assert!(parse_size("1TB").is_err() && parse_size("-1").is_err());
    }
}
