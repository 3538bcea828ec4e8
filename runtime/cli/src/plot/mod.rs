//! Figures: SVG without fonts or scripts from elsewhere, readable on light and on dark pages.

mod cuts;
mod links;

pub(crate) use cuts::cuts;
pub(crate) use links::links;

use std::fmt::Write;

const WIDTH: f64 = 960.0;
/// Room for the labels of the left axis and its title, and of the right one.
const LEFT: f64 = 84.0;
const RIGHT: f64 = 84.0;
/// Room for the title, the line below it and the legend.
const TOP: f64 = 112.0;

/// Colours of series, which tell apart on either paper, also for those who confuse red and green.
const COLOURS: [&str; 6] = ["#3b82c4", "#d9730d", "#2a9d76", "#a855c7", "#c94f6d", "#8a8d1f"];

/// A viewer that prefers dark pages gets a dark paper; one that knows no such rule the light one.
const STYLE: &str = "<style>.paper{fill:#ffffff}.ink{fill:#1f2328}.soft{fill:#59636e}.grid{stroke:#e3e7ec}.axis{stroke:#59636e}\
@media(prefers-color-scheme:dark){.paper{fill:#14181f}.ink{fill:#e6e9ee}.soft{fill:#a3abb6}.grid{stroke:#2b323c}.axis{stroke:#a3abb6}}</style>";

/// The paper, the title and a line that says what was measured where.
fn begin(out: &mut String, height: f64, title: &str, subtitle: &str) -> std::fmt::Result {
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" font-family="system-ui, sans-serif" font-size="13">"#
    )?;
    let (title, subtitle) = (escaped(title), escaped(subtitle));
    writeln!(out, "<title>{title}</title>{STYLE}")?;
    writeln!(
        out,
        r#"<rect class="paper" width="{WIDTH}" height="{height}" rx="8"/>"#
    )?;
    writeln!(
        out,
        r#"<text class="ink" x="{LEFT}" y="34" font-size="19" font-weight="600">{title}</text><text class="soft" x="{LEFT}" y="56">{subtitle}</text>"#
    )
}

/// How an entry of a legend looks.
enum Mark {
    Bar,
    Line,
    Dashes,
}

/// Says what each colour stands for, in rows from left to right below the title.
fn legend(out: &mut String, entries: &[(Mark, &str, String)]) -> std::fmt::Result {
    /// What a letter takes at this size, on the wide side.
    const LETTER: f64 = 7.0;
    const GAP: f64 = 46.0;
    let (mut x, mut y) = (LEFT, 80.0);
    for (mark, colour, text) in entries {
        let width = text.chars().count() as f64 * LETTER + GAP;
        if x > LEFT && x + width > WIDTH - RIGHT / 2.0 {
            (x, y) = (LEFT, y + 19.0);
        }
        match mark {
            Mark::Bar => writeln!(
                out,
                r#"<path d="M{x:.1} {:.1}h18v10h-18z" fill="{colour}"/>"#,
                y - 9.0
            )?,
            Mark::Line | Mark::Dashes => {
                let dashes = if matches!(mark, Mark::Dashes) {
                    r#" stroke-dasharray="6 4""#
                } else {
                    ""
                };
                writeln!(
                    out,
                    r#"<path d="M{x:.1} {:.1}h22" stroke="{colour}" stroke-width="2.5"{dashes}/>"#,
                    y - 4.0
                )?;
            }
        }
        writeln!(
            out,
            r#"<text class="ink" x="{:.1}" y="{y:.1}">{}</text>"#,
            x + 28.0,
            escaped(text)
        )?;
        x += width;
    }
    Ok(())
}

/// The distance of ticks, one, two or five times a power of ten, of which at most `most` reach `top`.
fn tick(top: f64, most: u32) -> f64 {
    let least = (top / f64::from(most.max(1))).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|step| step * power);
    // What was computed to be a step may miss it by a rounding.
    let fits = steps.into_iter().find(|step| *step >= least * (1.0 - 1e-9));
    fits.unwrap_or(power * 10.0)
}

/// A number without zeros that say nothing: `2.5`, `10`.
fn plain(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(text: &str) -> String {
    let replace = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        c if c.is_control() => " ".to_owned(),
        c => c.to_string(),
    };
    text.chars().map(replace).collect()
}

/// The attribute of each element called `element`.
#[cfg(test)]
fn attribute(svg: &str, element: &str, name: &str) -> Vec<f64> {
    let elements = svg.split('<').filter(|text| text.starts_with(element));
    let value = |text: &str| {
        let (_, rest) = text.split_once(&format!(" {name}=\""))?;
        rest.split('"').next()?.parse().ok()
    };
    elements.filter_map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers() {
        for (top, step) in [
            (2.5, 0.5),
            (1.0, 0.2),
            (10.0, 2.0),
            (0.07, 0.02),
            (12.0, 5.0),
            (400.0, 100.0),
        ] {
            assert!(
                (tick(top, 5) - step).abs() < step * 1e-9,
                "{top}: {}",
                tick(top, 5)
            );
        }
        assert!(tick(0.0, 5).is_finite());
    }

    #[test]
    fn numbers_are_plain() {
        assert_eq!([2.5, 10.0, 0.02, 0.0].map(plain), ["2.5", "10", "0.02", "0"]);
    }
}
