//! Confusion matrix with shaded cells.

use super::frame::Frame;
use super::{end, open_svg};
use crate::markup::{count, escaped, middle_cut, percent};

/// Maximum number of classes in a matrix.
pub(crate) const FULL: usize = 100;
/// Maximum number of classes for cells with printed counts.
const WRITTEN: usize = 20;
/// Maximum length of class names at an axis in characters.
const LETTERS: usize = 16;

pub(crate) struct Matrix<'a> {
    /// Title of the chart.
    pub(crate) title: &'a str,
    pub(crate) names: &'a [&'a str],
    /// Row, column and number of samples.
    pub(crate) cells: &'a [(usize, usize, u64)],
}

/// Draws the matrix. Each row is a true class, and shades show the fraction of the row. Names after the first
/// [`FULL`] are ignored.
pub(crate) fn matrix(chart: &Matrix) -> String {
    let classes = chart.names.len().clamp(1, FULL);
    let cell = match classes {
        ..=12 => 40.0,
        13..=WRITTEN => 32.0,
        21..=50 => 15.0,
        _ => 11.0,
    };
    let longest = chart
        .names
        .iter()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0);
    let size = if cell < 14.0 { 9.0 } else { 12.0 };
    // Estimated width of the names and the axis title.
    let margin = longest.min(LETTERS) as f64 * size * 0.64 + 34.0;
    let side = cell * classes as f64;
    let width = margin + side + 6.0;
    let height = margin + side + 6.0;
    let frame = Frame {
        width,
        height,
        left: margin,
        right: 6.0,
        top: margin,
        bottom: 6.0,
    };
    let mut out = open_svg("matrix", &frame, chart.title);
    // Use a fixed size instead of the page's width to keep text readable. The container scrolls.
    out = out.replacen(
        "<svg ",
        &format!(r#"<svg width="{width:.0}" height="{height:.0}" style="font-size:{size}px" "#),
        1,
    );
    out.push_str(&format!(
        r#"<rect class="field" x="{margin:.1}" y="{margin:.1}" width="{side:.1}" height="{side:.1}"/>"#
    ));
    for (place, name) in chart.names.iter().enumerate().take(classes) {
        let middle = margin + cell * (place as f64 + 0.5);
        let short = escaped(&middle_cut(name, LETTERS));
        let whole = escaped(name);
        out.push_str(&format!(
            r#"<text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{short}<title>{whole}</title></text>"#,
            margin - 6.0,
            middle + size * 0.35,
        ));
        out.push_str(&format!(
            r#"<text class="tick" transform="translate({:.1} {:.1}) rotate(-90)">{short}<title>{whole}</title></text>"#,
            middle + size * 0.35,
            margin - 6.0,
        ));
    }
    let middle = margin + side / 2.0;
    out.push_str(&format!(
        r#"<text class="word" x="{middle:.1}" y="14" text-anchor="middle">predicted</text><text class="word" transform="translate(14 {middle:.1}) rotate(-90)" text-anchor="middle">true</text>"#
    ));
    cells(&mut out, chart, classes, margin, cell);
    end(out)
}

fn cells(out: &mut String, chart: &Matrix, classes: usize, margin: f64, cell: f64) {
    let mut rows = vec![0_u64; classes];
    for (row, _, samples) in chart.cells {
        if let Some(sum) = rows.get_mut(*row) {
            *sum += samples;
        }
    }
    for (row, column, samples) in chart.cells {
        let (Some(sum), true) = (rows.get(*row), *column < classes && *samples > 0) else {
            continue;
        };
        let share = *samples as f64 / (*sum).max(1) as f64;
        let name = |place: usize| escaped(chart.names.get(place).copied().unwrap_or_default());
        let x = margin + cell * *column as f64;
        let y = margin + cell * *row as f64;
        let class = if row == column { "right" } else { "wrong" };
        // Increase the contrast of small fractions, because mistakes are rare.
        let shade = share.powf(0.6).mul_add(0.92, 0.08);
        out.push_str(&format!(
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{:.1}" height="{:.1}" fill-opacity="{shade:.2}"><title>{} predicted as {}: {} of {} ({})</title></rect>"#,
            cell - 1.0,
            cell - 1.0,
            name(*row),
            name(*column),
            count(*samples),
            count(*sum),
            percent(share)
        ));
        if classes <= WRITTEN {
            let ink = if shade > 0.55 { "on" } else { "cell" };
            out.push_str(&format!(
                r#"<text class="{ink}" x="{:.1}" y="{:.1}" text-anchor="middle">{samples}</text>"#,
                x + (cell - 1.0) / 2.0,
                y + cell / 2.0 + 4.0,
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_say_what_they_count_and_are_bounded() {
        let svg = matrix(&Matrix {
            title: "t",
            names: &["a&b", "c"],
            cells: &[(0, 0, 3), (0, 1, 1), (1, 1, 0), (7, 0, 2), (0, 9, 2)],
        });
        assert_eq!(
            svg.matches("class=\"right\"").count() + svg.matches("class=\"wrong\"").count(),
            2
        );
        assert!(svg.contains("a&amp;b predicted as c: 1 of 6"), "{svg}");
        let names = vec!["n"; 5000];
        let large = matrix(&Matrix {
            title: "t",
            names: &names,
            cells: &[(0, 0, 1)],
        });
        assert_eq!(large.matches("<text").count(), 2 * FULL + 2);
    }
}
