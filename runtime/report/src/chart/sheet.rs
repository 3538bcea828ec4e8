//! Charts as standalone files with background, title, legend and style. They do not depend on external fonts
//! or scripts, and support light and dark pages. Viewers that do not support color schemes use the light
//! colors.

use super::Mark;
use super::plot::Frame;
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
        include_str!("sheet.css").trim_end()
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
