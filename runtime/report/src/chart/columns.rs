//! Charts with a stacked column for each epoch.

use super::axis::Axis;
use super::frame::Frame;
use super::{end, fill, open_svg};
use crate::markup::{escaped, plain};

const FRAME: Frame = Frame {
    width: 480.0,
    height: 240.0,
    left: 76.0,
    right: 14.0,
    top: 12.0,
    bottom: 42.0,
};
/// Maximum number of columns. If there are more, neighbors are joined.
const MOST: usize = 80;

pub(crate) struct Columns<'a> {
    /// Title of the chart.
    pub(crate) title: &'a str,
    /// Caption of the horizontal axis.
    pub(crate) across: &'a str,
    /// Names of the parts.
    pub(crate) names: [&'a str; 2],
    /// Number and parts of each column, starting at the bottom.
    pub(crate) columns: &'a [(f64, [f64; 2])],
    /// Formats heights at the axis. `shown` formats heights in tooltips.
    pub(crate) ticked: fn(f64) -> String,
    pub(crate) shown: fn(f64) -> String,
}

/// Joined columns with a range of numbers and the mean of each part.
struct JoinedColumn {
    from: f64,
    to: f64,
    parts: [f64; 2],
}

/// Draws the chart. Returns `None` if all columns are empty.
pub(crate) fn columns(chart: &Columns) -> Option<String> {
    let joined = joined(chart.columns);
    let heights = joined.iter().map(|column| column.parts.iter().sum());
    let most = heights.fold(0.0, f64::max);
    let first = joined.first()?.from;
    let last = joined.last()?.to;
    if most <= 0.0 || !most.is_finite() {
        return None;
    }
    let up = Axis::rounded(0.0, most, 4);
    let across = Axis::whole(first, last, 8);
    let wide = (FRAME.edge() - FRAME.left) / joined.len() as f64;
    let mut out = open_svg("chart", &FRAME, chart.title);
    for tick in up.ticks() {
        FRAME.level(&mut out, up.share(tick), &(chart.ticked)(tick));
    }
    FRAME.foot(&mut out, chart.across);
    for (place, column) in joined.iter().enumerate() {
        let x = FRAME.left + wide * place as f64;
        let numbers = column.from..=column.to;
        let stack = Stack {
            chart,
            up: &up,
            x: x + wide * 0.12,
            wide: wide * 0.76,
        };
        stack.draw(&mut out, column);
        if across.ticks().any(|tick| numbers.contains(&tick)) {
            FRAME.below(&mut out, x + wide / 2.0, &plain(column.from));
        }
    }
    Some(end(out))
}

fn joined(columns: &[(f64, [f64; 2])]) -> Vec<JoinedColumn> {
    let per = columns.len().div_ceil(MOST).max(1);
    let join = |chunk: &[(f64, [f64; 2])]| {
        let mean = |part: fn([f64; 2]) -> f64| {
            let parts = chunk.iter().map(|(_, parts)| part(*parts));
            let parts = parts.map(|value| if value.is_finite() { value.max(0.0) } else { 0.0 });
            parts.sum::<f64>() / chunk.len() as f64
        };
        Some(JoinedColumn {
            from: chunk.first()?.0,
            to: chunk.last()?.0,
            parts: [mean(|[low, _]| low), mean(|[_, high]| high)],
        })
    };
    columns.chunks(per).filter_map(join).collect()
}

/// Position and scale of a column.
struct Stack<'a> {
    chart: &'a Columns<'a>,
    up: &'a Axis,
    x: f64,
    wide: f64,
}

impl Stack<'_> {
    fn draw(&self, out: &mut String, column: &JoinedColumn) {
        let number = if column.from == column.to {
            plain(column.from)
        } else {
            format!("{} to {}, mean", plain(column.from), plain(column.to))
        };
        let mut below = FRAME.base();
        for (place, (value, name)) in column.parts.iter().zip(self.chart.names).enumerate() {
            let height = FRAME.base() - FRAME.y(self.up.share(*value));
            below -= height;
            if height > 0.0 {
                out.push_str(&format!(
                    r#"<rect class="{}" x="{:.1}" y="{below:.1}" width="{:.1}" height="{height:.1}"><title>{} {number}, {}: {}</title></rect>"#,
                    fill(place),
                    self.x,
                    self.wide,
                    escaped(self.chart.across),
                    escaped(name),
                    escaped(&(self.chart.shown)(*value)),
                ));
            }
        }
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
