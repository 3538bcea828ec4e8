//! Columns of parts that add up, one for each epoch.

use super::axis::Axis;
use super::{COLOURS, begin};
use crate::markup::{escaped, plain};

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
/// Where columns stand.
const BASE: f64 = HEIGHT - 42.0;
/// Columns that are told apart; of more, neighbours are taken together.
const MOST: usize = 80;

pub(crate) struct Columns<'a> {
    /// What the chart shows, in a sentence.
    pub(crate) title: &'a str,
    /// Below the axis.
    pub(crate) across: &'a str,
    /// What each part is.
    pub(crate) names: [&'a str; 2],
    /// Each column's number and parts, the lowest first.
    pub(crate) columns: &'a [(f64, [f64; 2])],
    /// How a height reads beside the axis, and where somebody points at it.
    pub(crate) ticked: fn(f64) -> String,
    pub(crate) shown: fn(f64) -> String,
}

/// Neighbours taken together: the first and the last number, and the mean of each part.
struct Joined {
    from: f64,
    to: f64,
    parts: [f64; 2],
}

/// The chart; nothing where all columns are empty.
pub(crate) fn columns(chart: &Columns) -> Option<String> {
    let joined = joined(chart.columns);
    let heights = joined.iter().map(|column| column.parts.iter().sum());
    let most = heights.fold(0.0, f64::max);
    let (first, last) = (joined.first()?.from, joined.last()?.to);
    if most <= 0.0 || !most.is_finite() {
        return None;
    }
    let up = Axis::of(0.0, most, 4);
    let across = Axis::whole(first, last, 8);
    let wide = (WIDTH - LEFT - RIGHT) / joined.len() as f64;
    let mut out = begin("chart", WIDTH, HEIGHT, chart.title);
    grid(&mut out, &up, chart);
    for (place, column) in joined.iter().enumerate() {
        let x = LEFT + wide * place as f64;
        stack(&mut out, chart, &up, column, (x + wide * 0.12, wide * 0.76));
        if across
            .ticks()
            .any(|tick| (column.from..=column.to).contains(&tick))
        {
            out.push_str(&format!(
                r#"<text class="tick" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                x + wide / 2.0,
                BASE + 17.0,
                plain(column.from)
            ));
        }
    }
    out.push_str("</svg>");
    Some(out)
}

fn joined(columns: &[(f64, [f64; 2])]) -> Vec<Joined> {
    let per = columns.len().div_ceil(MOST).max(1);
    let join = |chunk: &[(f64, [f64; 2])]| {
        let mean = |part: fn([f64; 2]) -> f64| {
            let parts = chunk.iter().map(|(_, parts)| part(*parts));
            let parts = parts.map(|value| if value.is_finite() { value.max(0.0) } else { 0.0 });
            parts.sum::<f64>() / chunk.len() as f64
        };
        Some(Joined {
            from: chunk.first()?.0,
            to: chunk.last()?.0,
            parts: [mean(|[low, _]| low), mean(|[_, high]| high)],
        })
    };
    columns.chunks(per).filter_map(join).collect()
}

/// The lines behind the columns, the one below them, and what they say.
fn grid(out: &mut String, up: &Axis, chart: &Columns) {
    let right = WIDTH - RIGHT;
    for tick in up.ticks() {
        let y = BASE - up.share(tick) * (BASE - TOP);
        out.push_str(&format!(
            r#"<path class="grid" d="M{LEFT} {y:.1}H{right}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            LEFT - 7.0,
            y + 4.0,
            escaped(&(chart.ticked)(tick))
        ));
    }
    out.push_str(&format!(
        r#"<path class="axis" d="M{LEFT} {BASE}H{right}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
        (LEFT + right) / 2.0,
        HEIGHT - 6.0,
        escaped(chart.across)
    ));
}

/// A column's parts on each other, from `x` on.
fn stack(out: &mut String, chart: &Columns, up: &Axis, column: &Joined, (x, wide): (f64, f64)) {
    let number = if column.from == column.to {
        plain(column.from)
    } else {
        format!("{} to {}, mean", plain(column.from), plain(column.to))
    };
    let mut below = 0.0;
    for (place, (value, name)) in column.parts.iter().zip(chart.names).enumerate() {
        let height = up.share(*value) * (BASE - TOP);
        if height > 0.0 {
            out.push_str(&format!(
                r#"<rect class="f{}" x="{x:.1}" y="{:.1}" width="{wide:.1}" height="{height:.1}"><title>{} {number}, {}: {}</title></rect>"#,
                place % COLOURS,
                BASE - below - height,
                escaped(chart.across),
                escaped(name),
                escaped(&(chart.shown)(*value)),
            ));
        }
        below += height;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_columns_are_joined_and_none_are_no_chart() {
        let many: Vec<(f64, [f64; 2])> = (1..=1000).map(|i| (f64::from(i), [1.0, f64::NAN])).collect();
        let chart = |columns| Columns {
            title: "t",
            across: "epoch",
            names: ["a", "b"],
            columns,
            ticked: plain,
            shown: plain,
        };
        let svg = columns(&chart(&many)).unwrap();
        assert!(
            svg.matches("<rect").count() <= MOST && !svg.contains("NaN"),
            "{svg}"
        );
        assert_eq!(columns(&chart(&[])), None);
        assert_eq!(columns(&chart(&[(1.0, [0.0, 0.0])])), None);
    }
}
