//! Confusion matrix with shaded cells.

use super::plot::{rect, rotated, text};
use crate::markup::{count, escaped, middle_cut, percent};

/// Maximum number of classes in a matrix.
pub(crate) const FULL: usize = 100;
/// Maximum number of classes for cells with printed counts.
const WRITTEN: usize = 20;
/// Maximum length of class names at an axis in characters.
const LETTERS: usize = 16;

/// Draws a confusion matrix with a row, a column and a number of samples for each cell. Each row is a true
/// class, and shades show the fraction of the row. Names after the first [`FULL`] are ignored.
pub(crate) fn matrix(title: &str, names: &[&str], cells: &[(usize, usize, u64)]) -> String {
    let classes = names.len().clamp(1, FULL);
    let cell = match classes {
        ..=12 => 40.0,
        13..=WRITTEN => 32.0,
        21..=50 => 15.0,
        _ => 11.0,
    };
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let size = if cell < 14.0 { 9.0 } else { 12.0 };
    // Estimated width of the names and the axis title.
    let margin = longest.min(LETTERS) as f64 * size * 0.64 + 34.0;
    let side = cell * classes as f64;
    let whole = margin + side + 6.0;
    // Use a fixed size instead of the page's width to keep text readable. The container scrolls.
    let mut out = format!(
        r#"<svg width="{whole:.0}" height="{whole:.0}" style="font-size:{size}px" class="matrix" viewBox="0 0 {whole} {whole}" role="img"><title>{}</title><rect class="field" x="{margin:.1}" y="{margin:.1}" width="{side:.1}" height="{side:.1}"/>"#,
        escaped(title)
    );
    for (place, name) in names.iter().enumerate().take(classes) {
        let middle = margin + cell * (place as f64 + 0.5) + size * 0.35;
        let beside = margin - 6.0;
        let words = format!(
            "{}<title>{}</title>",
            escaped(&middle_cut(name, LETTERS)),
            escaped(name)
        );
        out.push_str(&format!(
            r#"<text class="tick" x="{beside:.1}" y="{middle:.1}" text-anchor="end">{words}</text><text class="tick" transform="translate({middle:.1} {beside:.1}) rotate(-90)">{words}</text>"#
        ));
    }
    let middle = margin + side / 2.0;
    text(&mut out, "word", [middle, 14.0], "middle", "predicted");
    rotated(&mut out, "word", [14.0, middle], -90, "true");
    draw_cells(&mut out, names, cells, margin, cell);
    out + "</svg>"
}

fn draw_cells(out: &mut String, names: &[&str], cells: &[(usize, usize, u64)], margin: f64, cell: f64) {
    let names = names.get(..FULL).unwrap_or(names);
    let mut rows = vec![0_u64; names.len()];
    for (row, _, samples) in cells {
        if let Some(sum) = rows.get_mut(*row) {
            *sum += samples;
        }
    }
    for (row, column, samples) in cells.iter().filter(|(_, _, samples)| *samples > 0) {
        let (Some(sum), Some(is), Some(taken)) = (rows.get(*row), names.get(*row), names.get(*column)) else {
            continue;
        };
        let share = *samples as f64 / (*sum).max(1) as f64;
        let x = margin + cell * *column as f64;
        let y = margin + cell * *row as f64;
        let class = if row == column { "right" } else { "wrong" };
        // Increase the contrast of small fractions, because mistakes are rare.
        let shade = share.powf(0.6).mul_add(0.92, 0.08);
        let counts = format!("{} of {} ({})", count(samples), count(sum), percent(share));
        let title = format!("{is} predicted as {taken}: {counts}");
        rect(out, class, [x, y, cell - 1.0, cell - 1.0], shade, &title);
        if names.len() <= WRITTEN {
            let ink = if shade > 0.55 { "on" } else { "cell" };
            let middle = [x + (cell - 1.0) / 2.0, y + cell / 2.0 + 4.0];
            text(out, ink, middle, "middle", &samples.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_say_what_they_count_and_are_bounded() {
        let svg = matrix(
            "t",
            &["a&b", "c"],
            &[(0, 0, 3), (0, 1, 1), (1, 1, 0), (7, 0, 2), (0, 9, 2)],
        );
        assert_eq!(
            svg.matches("class=\"right\"").count() + svg.matches("class=\"wrong\"").count(),
            2
        );
        assert!(svg.contains("a&amp;b predicted as c: 1 of 6"), "{svg}");
        let names = vec!["n"; 5000];
        let large = matrix("t", &names, &[(0, 0, 1)]);
        assert_eq!(large.matches("<text").count(), 2 * FULL + 2);
    }
}
