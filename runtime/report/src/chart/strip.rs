//! Strips of a timeline. They contain no text, because they are stretched to the width of the page.

use super::COLORS;
use super::plot::rect;
use crate::markup::escaped;

/// Width of a strip in SVG units. This is a multiple of the number of intervals to avoid gaps.
const WIDE: f64 = 1200.0;

/// A period of the job.
#[derive(Debug)]
pub(crate) struct Span {
    /// Start and end in seconds.
    pub(crate) from: f64,
    pub(crate) to: f64,
    /// Index of the color.
    pub(crate) place: usize,
    pub(crate) opacity: f64,
    pub(crate) text: String,
}

fn strip(class: &str, title: &str, inside: &str) -> String {
    format!(
        r#"<svg class="strip {class}" viewBox="0 0 {WIDE} 100" preserveAspectRatio="none" role="img"><title>{}</title>{inside}</svg>"#,
        escaped(title)
    )
}

/// Draws stacked fractions for each interval. The rest of an interval is empty.
pub(crate) fn area(class: &str, title: &str, layers: &[(usize, &[f64])]) -> String {
    let mut inside = String::new();
    let mut below = vec![0.0; layers.first().map_or(0, |(_, parts)| parts.len())];
    for (place, parts) in layers {
        let wide = WIDE / parts.len().max(1) as f64;
        let mut path = String::new();
        for (number, (share, below)) in parts.iter().zip(&mut below).enumerate() {
            let height = share.clamp(0.0, 1.0) * 100.0;
            if height > 0.05 {
                let x = wide * number as f64;
                let y = 100.0 - *below - height;
                path.push_str(&format!("M{x:.1} {y:.1}h{wide:.2}v{height:.1}h-{wide:.2}z"));
            }
            *below += height;
        }
        if !path.is_empty() {
            inside.push_str(&format!(r#"<path class="f{}" d="{path}"/>"#, place % COLORS));
        }
    }
    strip(class, title, &inside)
}

/// Draws periods of a job with a duration in seconds.
pub(crate) fn spans(title: &str, spans: &[Span], seconds: f64) -> String {
    let mut inside = String::new();
    for span in spans {
        let [from, to] = [span.from, span.to].map(|at| (at / seconds).clamp(0.0, 1.0) * WIDE);
        let area = [from, 10.0, (to - from).max(1.0), 80.0];
        let color = format!("f{}", span.place % COLORS);
        rect(&mut inside, &color, area, span.opacity, &span.text);
    }
    strip("low", title, &inside)
}

/// Draws marks at the given fractions of the job's time.
pub(crate) fn marks<T: AsRef<str>>(
    title: &str,
    place: usize,
    at: impl IntoIterator<Item = (f64, T)>,
) -> String {
    let mut inside = String::new();
    for (share, words) in at {
        inside.push_str(&format!(
            r#"<path class="l{}" d="M{:.1} 8V92"><title>{}</title></path>"#,
            place % COLORS,
            share.clamp(0.0015, 0.9985) * WIDE,
            escaped(words.as_ref())
        ));
    }
    strip("low", title, &inside)
}
