use super::axis::ValueAxis;
use super::plot::{Plot, Series, rect, rotated};
use super::{COLORS, Mark, fill, sheet, stroke};
use crate::markup::{bytes, escaped, plain};

/// Color of each kind of value.
const SIZE: usize = 0;
const COMPUTE: usize = 1;
const OBJECT: usize = 2 + COLORS;
const INPUT: usize = 3 + COLORS;

/// Maximum length of a cut's name in characters.
const LONGEST: usize = 26;

/// Minimum distance between names to avoid overlaps.
const APART: f64 = 15.0;

/// Measured costs at a cut.
#[derive(Debug, Clone)]
pub struct CutCost {
    /// Name of the cut.
    pub name: String,
    /// Size of the activation per sample in bytes.
    pub bytes: u64,
    /// Compute time per sample up to the cut in milliseconds.
    pub milliseconds: f64,
}

/// Draws a figure of a network's cuts as an SVG file, in the order of the network. Bars show the bytes per
/// sample on a logarithmic scale, and a line shows the compute time. `weights` are the sizes of a stored object
/// and of its pixels in bytes, and the subtitle describes the measurement.
pub fn cuts(title: &str, subtitle: &str, cuts: &[CutCost], weights: [u64; 2]) -> String {
    let [object, input] = weights.map(|weight| weight as f64);
    let entries = [
        (Mark::Box, SIZE, "bytes of a sample at the cut".to_owned()),
        (Mark::Line, COMPUTE, "compute up to it".to_owned()),
        (Mark::Line, OBJECT, format!("stored object, {}", bytes(object))),
        (Mark::Line, INPUT, format!("its pixels, {}", bytes(input))),
    ];
    let letters = cuts.iter().map(|cut| cut.name.chars().count());
    // Names are rotated.
    let bottom = 36.0 + letters.max().unwrap_or(0).min(LONGEST) as f64 * 4.6;
    let frame = sheet::frame(430.0 + bottom, bottom);
    let bytes_of = cuts.iter().map(|cut| cut.bytes as f64);
    let axes = [
        ValueAxis::whole(0.0, cuts.len() as f64, 1),
        sizes(bytes_of.chain([object, input])),
    ];
    let out = sheet::open_svg(&frame, title, subtitle, &entries);
    let mut plot = Plot::new(frame, axes, out);
    plot.levels(|tick| bytes(tick).replace(".0 ", " "));
    let middle = (frame.top + frame.base()) / 2.0;
    rotated(
        &mut plot.out,
        "tick",
        [18.0, middle],
        -90,
        "bytes a sample (f32, logarithmic)",
    );
    bars(&mut plot, cuts);
    for (weight, color) in [(object, OBJECT), (input, INPUT)] {
        plot.line(&[(0.0, weight), (plot.across.high, weight)], &stroke(color));
    }
    compute(&mut plot, cuts);
    plot.foot("");
    plot.end() + "\n"
}

/// Returns a logarithmic axis from a power of ten to another.
fn sizes(sizes: impl Iterator<Item = f64> + Clone) -> ValueAxis {
    let sizes = sizes.filter(|bytes| *bytes >= 1.0);
    let low = sizes.clone().fold(1e6, f64::min).log10().floor();
    let high = sizes.fold(1.0, f64::max).log10().ceil().max(low + 1.0);
    ValueAxis::logarithmic(10_f64.powf(low), 10_f64.powf(high), &[1.0])
}

fn bars(plot: &mut Plot, cuts: &[CutCost]) {
    let frame = plot.frame;
    let step = (frame.edge() - frame.left) / cuts.len().max(1) as f64;
    let base = frame.base();
    let named = (APART / step).ceil().max(1.0) as usize;
    let last = cuts.len().saturating_sub(1);
    for (index, cut) in cuts.iter().enumerate() {
        let x = plot.x(index as f64 + 0.5);
        let y = plot.y(cut.bytes as f64);
        let title = format!(
            "{}: {}, {:.2} ms",
            cut.name,
            bytes(cut.bytes as f64),
            cut.milliseconds
        );
        let area = [x - step * 0.31, y, step * 0.62, base - y];
        rect(&mut plot.out, &fill(SIZE), area, 0.65, &title);
        // Count from the freeze cut at the end, so that it always has a name.
        if (last - index).is_multiple_of(named) {
            plot.out.push_str(&format!(
                r#"<text transform="translate({:.1} {:.1}) rotate(-40)" text-anchor="end" font-size="12">{}</text>"#,
                x + 4.0,
                base + 16.0,
                escaped(&shortened(&cut.name))
            ));
        }
    }
    plot.out.push('\n');
}

/// Draws the compute time with a separate axis on the right.
fn compute(plot: &mut Plot, cuts: &[CutCost]) {
    let most = cuts.iter().map(|cut| cut.milliseconds).fold(1e-3, f64::max);
    plot.up = ValueAxis::rounded(0.0, most, 5);
    let frame = plot.frame;
    for tick in plot.up.ticks() {
        let label = format!(
            r#"<text class="t{COMPUTE}" x="{:.1}" y="{:.1}">{}</text>"#,
            frame.edge() + 8.0,
            plot.y(tick) + 4.0,
            plain(tick)
        );
        plot.out.push_str(&label);
    }
    let middle = (frame.top + frame.base()) / 2.0;
    rotated(
        &mut plot.out,
        "tick",
        [frame.width - 18.0, middle],
        90,
        "milliseconds a sample",
    );
    let points = (0..)
        .zip(cuts)
        .map(|(index, cut)| (f64::from(index) + 0.5, cut.milliseconds));
    plot.curve(&Series::new("compute", points.collect(), COMPUTE), plain);
}

/// Shortens a long name to the end, which identifies the layer.
fn shortened(name: &str) -> String {
    let count = name.chars().count();
    if count <= LONGEST {
        return name.to_owned();
    }
    format!("…{}", name.chars().skip(count + 1 - LONGEST).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(name: &str, bytes: u64, milliseconds: f64) -> CutCost {
        CutCost {
            name: name.to_owned(),
            bytes,
            milliseconds,
        }
    }

    fn drawn(title: &str, list: &[CutCost]) -> String {
        cuts(title, "A & B <processor>", list, [20_000, 150_528])
    }

    /// Returns the values of an attribute for all bars.
    fn of_bars(svg: &str, name: &str) -> Vec<f64> {
        let bars = svg
            .split('<')
            .filter(|text| text.starts_with("rect class=\"f0\" x="));
        let value = |text: &str| {
            let (_, rest) = text.split_once(&format!(" {name}=\""))?;
            rest.split('"').next()?.parse().ok()
        };
        bars.filter_map(value).collect()
    }

    #[test]
    fn a_figure_has_a_bar_and_a_point_for_each_cut() {
        let svg = drawn("net", &[cut("/features/a", 800_000, 4.0), cut("b", 2_048, 10.0)]);
        // 800 KB and 2 KB on an axis from 1 KB to 1 MB.
        let heights = of_bars(&svg, "height");
        let shares = [800_f64, 2.048].map(|size| size.log10() / 3.0);
        assert_eq!(heights.len(), shares.len());
        for (height, share) in heights.iter().zip(shares) {
            assert!((height / 318.0 - share).abs() < 0.01, "{heights:?}");
        }
        assert_eq!(svg.matches("compute, ").count(), 2);
        assert!(svg.contains("stored object, 20.0 KB") && svg.contains("its pixels, 150.5 KB"));
    }

    #[test]
    fn the_axis_of_milliseconds_has_round_numbers() {
        let svg = drawn("net", &[cut("a", 1000, 0.4), cut("b", 1000, 1.9)]);
        let labels: Vec<&str> = svg
            .split("<text class=\"t1\"")
            .skip(1)
            .filter_map(|text| text.split(['>', '<']).nth(1))
            .collect();
        assert_eq!(labels, ["0", "0.5", "1", "1.5", "2"]);
    }

    #[test]
    fn only_as_many_names_as_fit_are_drawn() {
        let many: Vec<CutCost> = (0..200)
            .map(|index| cut(&format!("block{index}"), 9, 1.0))
            .collect();
        let svg = drawn("net", &many);
        let names: Vec<&str> = svg.split("rotate(-40)").skip(1).collect();
        assert!((30..=60).contains(&names.len()), "{}", names.len());
        assert!(
            names.last().unwrap().contains(">block199<"),
            "the freeze cut is named"
        );
    }

    #[test]
    fn names_cannot_break_the_figure() {
        let svg = drawn("<script>", &[cut("b\"", 9, 1.0)]);
        assert!(!svg.contains("<script>") && svg.contains("&lt;script&gt;"));
        assert!(svg.contains("A &amp; B &lt;processor&gt;") && svg.contains("b&quot;"));
        assert_eq!(svg.matches("<svg").count(), 1);
        assert!(svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn long_names_keep_their_end() {
        let name = "/encoder/layers/encoder_layer_11/mlp/Add_output_0";
        let short = shortened(name);
        assert_eq!(short.chars().count(), LONGEST);
        assert!(short.ends_with("/mlp/Add_output_0"));
        assert_eq!(shortened("layer4.0"), "layer4.0");
    }

    #[test]
    fn no_cuts_are_still_a_figure() {
        let svg = cuts("net", "", &[], [0, 0]);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
