//! Columns of parts that add up, one for each epoch.

use super::axis::Axis;
use super::{COLOURS, begin};
use crate::markup::{escaped, plain};

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 42.0;
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

/// The chart; nothing where all columns are empty.
pub(crate) fn columns(chart: &Columns) -> Option<String> {
    let per = chart.columns.len().div_ceil(MOST).max(1);
    let joined: Vec<(f64, f64, [f64; 2])> = chart
        .columns
        .chunks(per)
        .filter_map(|chunk| {
            let mean = |part: fn([f64; 2]) -> f64| {
                let parts = chunk.iter().map(|(_, parts)| part(*parts));
                let parts = parts.map(|value| if value.is_finite() { value.max(0.0) } else { 0.0 });
                parts.sum::<f64>() / chunk.len() as f64
            };
            let parts = [mean(|[low, _]| low), mean(|[_, high]| high)];
            Some((chunk.first()?.0, chunk.last()?.0, parts))
        })
        .collect();
    let most = joined
        .iter()
        .map(|(_, _, [low, high])| low + high)
        .fold(0.0, f64::max);
    let (first, last) = (joined.first()?.0, joined.last()?.1);
    if most <= 0.0 || !most.is_finite() {
        return None;
    }
    let up = Axis::of(0.0, most, 4);
    let across = Axis::whole(first, last, 8);
    let (room, base) = (WIDTH - LEFT - RIGHT, HEIGHT - BOTTOM);
    let wide = room / joined.len() as f64;
    let mut out = begin("chart", WIDTH, HEIGHT, chart.title);
    for tick in up.ticks() {
        let y = base - up.share(tick) * (base - TOP);
        out.push_str(&format!(
            r#"<path class="grid" d="M{LEFT} {y:.1}H{}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            WIDTH - RIGHT,
            LEFT - 7.0,
            y + 4.0,
            escaped(&(chart.ticked)(tick))
        ));
    }
    for (place, (from, to, parts)) in joined.iter().enumerate() {
        let x = LEFT + wide * place as f64;
        let mut below = 0.0;
        for (colour, (value, name)) in parts.iter().zip(chart.names).enumerate() {
            let height = up.share(*value) * (base - TOP);
            let title = if from == to {
                plain(*from)
            } else {
                format!("{} to {}, mean", plain(*from), plain(*to))
            };
            if height > 0.0 {
                out.push_str(&format!(
                    r#"<rect class="f{}" x="{:.1}" y="{:.1}" width="{:.1}" height="{height:.1}"><title>{} {title}, {}: {}</title></rect>"#,
                    colour % COLOURS,
                    x + wide * 0.12,
                    base - below - height,
                    wide * 0.76,
                    escaped(chart.across),
                    escaped(name),
                    escaped(&(chart.shown)(*value)),
                ));
            }
            below += height;
        }
        let ticked = across.ticks().any(|tick| (*from..=*to).contains(&tick));
        if ticked {
            out.push_str(&format!(
                r#"<text class="tick" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                x + wide / 2.0,
                base + 17.0,
                plain(*from)
            ));
        }
    }
    out.push_str(&format!(
        r#"<path class="axis" d="M{LEFT} {base}H{}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text></svg>"#,
        WIDTH - RIGHT,
        LEFT + room / 2.0,
        HEIGHT - 6.0,
        escaped(chart.across)
    ));
    Some(out)
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
