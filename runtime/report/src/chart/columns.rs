//! Charts with a stacked column for each epoch.

use super::axis::ValueAxis;
use super::plot::{Frame, Plot, rect, text};
use super::{Mark, fill, legend};
use crate::markup::plain;

const FRAME: Frame = Frame::on_page(240.0, 76.0);
/// Maximum number of columns. If there are more, neighbors are joined.
const MOST: usize = 80;

pub(crate) struct Columns<'a> {
    /// Title of the chart.
    pub(crate) title: &'a str,
    /// Names of the parts. The second is empty if there is one part.
    pub(crate) names: [&'a str; 2],
    /// Epoch and parts of each column, starting at the bottom.
    pub(crate) columns: &'a [(f64, [f64; 2])],
    /// Formats heights at the axis. `shown` formats heights in tooltips.
    pub(crate) ticked: fn(f64) -> String,
    pub(crate) shown: fn(f64) -> String,
}

/// Draws the chart, with a legend if there are two parts. Returns `None` if all columns are empty.
pub(crate) fn columns(chart: &Columns) -> Option<String> {
    let per = chart.columns.len().div_ceil(MOST).max(1);
    // Neighbors are joined to a column with a range of epochs and the mean of each part.
    let joined: Vec<(f64, f64, [f64; 2])> = chart
        .columns
        .chunks(per)
        .filter_map(|chunk| {
            let sums = chunk.iter().fold([0.0; 2], |[low, high], (_, parts)| {
                let [one, other] = parts.map(|value| if value.is_finite() { value.max(0.0) } else { 0.0 });
                [low + one, high + other]
            });
            let means = sums.map(|sum| sum / chunk.len() as f64);
            Some((chunk.first()?.0, chunk.last()?.0, means))
        })
        .collect();
    let most = joined
        .iter()
        .map(|(_, _, parts)| parts.iter().sum())
        .fold(0.0, f64::max);
    if most <= 0.0 || !most.is_finite() {
        return None;
    }
    let across = ValueAxis::whole(joined.first()?.0, joined.last()?.1, 8);
    let axes = [across, ValueAxis::rounded(0.0, most, 4)];
    let mut plot = Plot::new(FRAME, axes, FRAME.open_svg("chart", chart.title));
    plot.levels(chart.ticked);
    plot.foot("epoch");
    let wide = (FRAME.edge() - FRAME.left) / joined.len() as f64;
    for (place, (from, to, parts)) in joined.into_iter().enumerate() {
        let x = FRAME.left + wide * place as f64;
        let number = if from == to {
            plain(from)
        } else {
            format!("{} to {}, mean", plain(from), plain(to))
        };
        let mut below = FRAME.base();
        for (place, (value, name)) in parts.into_iter().zip(chart.names).enumerate() {
            let height = FRAME.base() - plot.y(value);
            below -= height;
            if height > 0.0 {
                let title = format!("epoch {number}, {name}: {}", (chart.shown)(value));
                let area = [x + wide * 0.12, below, wide * 0.76, height];
                rect(&mut plot.out, &fill(place), area, 1.0, &title);
            }
        }
        if plot.across.ticks().any(|tick| (from..=to).contains(&tick)) {
            let at = [x + wide / 2.0, FRAME.base() + 17.0];
            text(&mut plot.out, "tick", at, "middle", &plain(from));
        }
    }
    let key = match chart.names {
        [_, ""] => String::new(),
        names => legend(Mark::Box, names.into_iter().enumerate()),
    };
    Some(plot.end() + &key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_columns_are_joined_and_none_are_no_chart() {
        let many: Vec<(f64, [f64; 2])> = (1..=1000).map(|i| (f64::from(i), [1.0, f64::NAN])).collect();
        let chart = |columns| Columns {
            title: "t",
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
