//! Escaping of untrusted text, and number formats for display.

use frostline_tensor::format_bytes;

/// Escapes text for an element or a quoted attribute. Characters that are invalid in documents or change the
/// text direction are replaced.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' | '\r' => out.push(' '),
            letter if letter.is_control() || turns(letter) => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

fn turns(letter: char) -> bool {
    matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
}

/// Truncates text to `letters` characters including an ellipsis.
pub(crate) fn shortened(text: &str, letters: usize) -> String {
    if text.chars().nth(letters).is_none() {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(letters.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// Shortens a name to `letters` characters by omitting the middle, because the end is often as important as
/// the beginning.
pub(crate) fn middle_cut(text: &str, letters: usize) -> String {
    let count = text.chars().count();
    if count <= letters {
        return text.to_owned();
    }
    let head = letters / 2;
    let tail = letters.saturating_sub(letters / 2 + 1);
    let begin: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(count - tail).collect();
    format!("{begin}…{end}")
}

/// Placeholder for missing numbers.
const NOTHING: &str = "–";

/// Formats a number with three or more significant digits, such as `0.0123`, `4.57` or `1234`.
pub(crate) fn significant(value: f64) -> String {
    if !value.is_finite() {
        return NOTHING.to_owned();
    }
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e9).contains(&size) {
        return format!("{value:.2e}");
    }
    let digits = if size == 0.0 {
        0
    } else {
        (2 - size.log10().floor() as i32).clamp(0, 6)
    };
    format!("{value:.*}", digits as usize)
}

/// Formats a number without trailing zeros, such as `2.5` or `10`.
pub(crate) fn plain(value: f64) -> String {
    let text = format!("{value:.6}");
    match text.trim_end_matches('0').trim_end_matches('.') {
        "-0" => "0".to_owned(),
        text => text.to_owned(),
    }
}

/// Formats a fraction as a percentage: `91.3 %`.
pub(crate) fn percent(share: f64) -> String {
    if share.is_finite() {
        format!("{:.1} %", share * 100.0)
    } else {
        NOTHING.to_owned()
    }
}

/// Formats bytes in powers of ten: `28.1 KB`.
pub(crate) fn bytes(count: f64) -> String {
    if count.is_finite() {
        format_bytes(count)
    } else {
        NOTHING.to_owned()
    }
}

/// Formats a fraction as a percentage without trailing zeros: `12.5 %`.
pub(crate) fn hundredths(share: f64) -> String {
    format!("{} %", plain((share * 1e6).round() / 1e4))
}

/// Formats a count with thousands separators.
pub(crate) fn count(of: impl ToString) -> String {
    let digits = of.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a duration, such as `340 ms`, `12.3 s`, `4 min 5 s` or `2 h 10 min`.
pub(crate) fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return NOTHING.to_owned();
    }
    if seconds == 0.0 {
        return "0 s".to_owned();
    }
    if seconds < 1.0 {
        return format!("{} ms", significant(seconds * 1e3));
    }
    if seconds < 99.95 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    let (large, unit, small, smaller) = if whole < 3600 {
        (whole / 60, "min", whole % 60, "s")
    } else {
        (whole / 3600, "h", whole % 3600 / 60, "min")
    };
    if small == 0 {
        format!("{large} {unit}")
    } else {
        format!("{large} {unit} {small} {smaller}")
    }
}

/// Formats a duration in a single unit, such as `340 ms`, `12.5 s` or `1.5 h`.
pub(crate) fn short_duration(seconds: f64) -> String {
    let (scale, unit) = match seconds {
        ..=0.0 => (1.0, "s"),
        ..1.0 => (1e-3, "ms"),
        ..120.0 => (1.0, "s"),
        ..7200.0 => (60.0, "min"),
        _ => (3600.0, "h"),
    };
    format!("{} {unit}", plain((seconds / scale * 10.0).round() / 10.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_becomes_markup() {
        assert_eq!(
            escaped("<script>\"a\" & 'b'\u{0}\u{202e}\n"),
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;\u{fffd}\u{fffd} "
        );
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(shortened("abcdef", 4), "abc…");
        assert_eq!(shortened("äöüß", 4), "äöüß");
        assert_eq!(middle_cut("train/cat/001.jpg", 9), "trai….jpg");
        assert_eq!(middle_cut("cat", 9), "cat");
    }

    #[test]
    fn figures_read_well() {
        let shown = [0.012_345, 4.567, 1234.5, 0.0, -2.5, f64::NAN, 1e-7].map(significant);
        assert_eq!(shown, ["0.0123", "4.57", "1234", "0", "-2.50", "–", "1.00e-7"]);
        assert_eq!(
            [0.5, 12.34, 245.0, 7800.0, 600.0].map(duration),
            ["500 ms", "12.3 s", "4 min 5 s", "2 h 10 min", "10 min"]
        );
        assert_eq!(
            [999.0, 28_100.0, 1.5e9].map(bytes),
            ["999 B", "28.1 KB", "1.5 GB"]
        );
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(count),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [0.0, 0.25, 15.0, 150.0, 9000.0].map(short_duration),
            ["0 s", "250 ms", "15 s", "2.5 min", "2.5 h"]
        );
        assert_eq!([2.5, 10.0, 0.02, -0.0].map(plain), ["2.5", "10", "0.02", "0"]);
    }
}
