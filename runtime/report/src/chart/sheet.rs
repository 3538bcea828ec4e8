//! Charts as standalone files with background, title, legend and style. They do not depend on external fonts
//! or scripts, and support light and dark pages.

use super::plot::Frame;
use super::{COLORS, Mark};
use crate::markup::escaped;

/// Returns the frame of a chart, with space for the title, the subtitle and the legend at the top, and for
/// axes on both sides.
pub(super) fn frame(height: f64, bottom: f64) -> Frame {
    Frame {
        width: 960.0,
        height,
        left: 84.0,
        right: 84.0,
        top: 112.0,
        bottom,
    }
}

const LIGHT: [&str; COLORS] = ["#0072b2", "#c65102", "#00805c", "#9c3f86", "#7a6200", "#545b64"];
const DARK: [&str; COLORS] = ["#5ab4f0", "#f0913e", "#43c79c", "#e28fcb", "#d6bf4f", "#b4bcc6"];

/// Starts a file with a title and a legend: symbol, color and text of each entry.
pub(super) fn open_svg(
    frame: &Frame,
    title: &str,
    subtitle: &str,
    entries: &[(Mark, usize, String)],
) -> String {
    let Frame {
        width, height, left, ..
    } = frame;
    let title = escaped(title);
    let subtitle = escaped(subtitle);
    let mut out = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" font-family="system-ui, sans-serif" font-size="13">
<title>{title}</title><style>{}</style><rect class="paper" width="{width}" height="{height}" rx="8"/>
<text x="{left}" y="34" font-size="19" font-weight="600">{title}</text><text class="tick" x="{left}" y="56">{subtitle}</text>
"#,
        style()
    );
    legend(&mut out, frame, entries);
    out
}

/// Draws the legend in rows below the title.
fn legend(out: &mut String, frame: &Frame, entries: &[(Mark, usize, String)]) {
    /// Estimated maximum width of a character.
    const LETTER: f64 = 7.0;
    let mut x = frame.left;
    let mut y = 70.0;
    for (mark, place, words) in entries {
        let beside = f64::from(mark.width()) + 6.0;
        let width = beside + words.chars().count() as f64 * LETTER + 14.0;
        if x > frame.left && x + width > frame.width - frame.right / 2.0 {
            (x, y) = (frame.left, y + 19.0);
        }
        out.push_str(&format!(
            r#"<g transform="translate({x:.1} {y:.1})">{}<text x="{beside}" y="11">{}</text></g>"#,
            mark.swatch(*place),
            escaped(words)
        ));
        x += width;
    }
    out.push('\n');
}

/// Returns the style sheet. Viewers that do not support color schemes use the light colors.
fn style() -> String {
    let scheme = |ink: &str, soft: &str, line: &str, paper: &str, colors: [&str; COLORS]| {
        let series = colors.iter().enumerate().map(|(place, color)| {
            format!(".f{place}{{fill:{color}}}.l{place}{{stroke:{color}}}.t{place}{{fill:{color}}}")
        });
        format!(
            "text{{fill:{ink}}}.tick{{fill:{soft}}}.axis{{stroke:{soft}}}.grid{{stroke:{line}}}.paper{{fill:{paper}}}{}",
            series.collect::<String>()
        )
    };
    format!(
        "path{{fill:none;stroke-width:2.2;stroke-linejoin:round;stroke-linecap:round}}.grid,.axis{{stroke-width:1}}.d1{{stroke-dasharray:7 4}}.d2{{stroke-dasharray:2 4}}{}@media(prefers-color-scheme:dark){{{}}}",
        scheme("#1b1f24", "#57606a", "#d5dae0", "#ffffff", LIGHT),
        scheme("#e6e9ee", "#a3abb6", "#323a45", "#11151b", DARK)
    )
}
