//! Formatting of numbers and names for people.

/// Formats a link rate in bits per second, as usual for links.
pub(crate) fn rate(bytes_per_second: f64) -> String {
    let megabits = bytes_per_second * 8.0 / 1e6;
    if megabits >= 1000.0 {
        format!("{:.1} Gbit/s", megabits / 1000.0)
    } else if megabits >= 10.0 {
        format!("{megabits:.0} Mbit/s")
    } else {
        format!("{megabits:.1} Mbit/s")
    }
}

pub(crate) fn seconds(seconds: f64) -> String {
    if seconds >= 1.0 {
        format!("{seconds:.2} s")
    } else {
        format!("{:.1} ms", seconds * 1e3)
    }
}

/// Formats an ordinal number: 2nd, 3rd, 4th.
pub(crate) fn ordinal(number: u64) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// Returns `did you mean x or y? ` with the names similar to `name`, or an empty text if there are none.
pub(crate) fn suggestion<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    match frostline_graph::similar(name, names).as_slice() {
        [] => String::new(),
        similar => format!("did you mean {}? ", similar.join(" or ")),
    }
}
