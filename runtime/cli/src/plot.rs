//! The study as a figure: an SVG without fonts or scripts from elsewhere. Bars: bytes of an image at each cut, logarithmic. Line:
//! compute up to there. Dashed: what an object and its decoded pixels weigh.

use frostline_trainer::HostStudy;
use std::fmt::Write;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 560.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 76.0;
const TOP: f64 = 64.0;
/// Room for the cuts' names, which stand askew.
const BOTTOM: f64 = 150.0;
const BAR: &str = "#7aa6d6";
const LINE: &str = "#c2410c";
const OBJECT: &str = "#15803d";
const INPUT: &str = "#6d28d9";

/// The longest name of a cut that is written out.
const LONGEST: usize = 28;

/// Rows of the batch whose time is drawn.
const BATCH: f64 = 16.0;

/// The figure of `study`, titled with the network's name.
pub(crate) fn svg(name: &str, study: &HostStudy) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = draw(&mut out, name, study);
    out
}

/// Where things go.
struct Scale {
    /// Powers of ten at the bottom and the top.
    low: f64,
    high: f64,
    most_ms: f64,
    cuts: usize,
}

impl Scale {
    fn of(study: &HostStudy) -> Self {
        let cuts = &study.profile.cuts;
        let sizes = || {
            let own = cuts.iter().map(|cut| cut.bytes_per_sample as f64);
            own.chain([study.object_bytes as f64, study.input_bytes as f64])
                .filter(|bytes| *bytes >= 1.0)
        };
        let smallest = sizes().fold(f64::INFINITY, f64::min).min(1e6);
        let largest = sizes().fold(1.0, f64::max);
        let low = smallest.log10().floor();
        Self {
            low,
            high: largest.log10().ceil().max(low + 1.0),
            most_ms: cuts.iter().map(milliseconds).fold(0.0, f64::max).max(1e-6) * 1.05,
            cuts: cuts.len().max(1),
        }
    }

    fn bytes(&self, bytes: f64) -> f64 {
        let share = (bytes.max(1.0).log10() - self.low) / (self.high - self.low);
        baseline() - share.clamp(0.0, 1.0) * (baseline() - TOP)
    }

    fn compute(&self, milliseconds: f64) -> f64 {
        baseline() - milliseconds / self.most_ms * (baseline() - TOP)
    }

    fn step(&self) -> f64 {
        (WIDTH - LEFT - RIGHT) / self.cuts as f64
    }

    /// The middle of a cut's column.
    fn column(&self, index: usize) -> f64 {
        LEFT + self.step() * (index as f64 + 0.5)
    }
}

fn baseline() -> f64 {
    HEIGHT - BOTTOM
}

fn milliseconds(cut: &frostline_wire::CutProfile) -> f64 {
    cut.compute.at(BATCH) / BATCH * 1e3
}

fn draw(out: &mut String, name: &str, study: &HostStudy) -> std::fmt::Result {
    let scale = Scale::of(study);
    writeln!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12" fill="#222">"##
    )?;
    writeln!(out, r##"<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>"##)?;
    writeln!(
        out,
        r##"<text x="{LEFT}" y="24" font-size="16">{}: bytes and compute at each cut</text>"##,
        escaped(name)
    )?;
    let place = &study.profile.place;
    writeln!(
        out,
        r##"<text x="{LEFT}" y="42" fill="#666">{}, {} threads a lane, batch {BATCH:.0}</text>"##,
        escaped(&place.machine),
        place.threads_per_lane
    )?;
    axes(out, &scale)?;
    bars(out, &scale, study)?;
    level(out, &scale, study.object_bytes, OBJECT, "mean object")?;
    level(out, &scale, study.input_bytes, INPUT, "pixels (u8)")?;
    line(out, &scale, study)?;
    writeln!(out, "</svg>")
}

fn axes(out: &mut String, scale: &Scale) -> std::fmt::Result {
    let (right, base) = (WIDTH - RIGHT, baseline());
    let mut power = scale.low;
    while power <= scale.high {
        let y = scale.bytes(10_f64.powf(power));
        writeln!(
            out,
            r##"<line x1="{LEFT}" y1="{y:.1}" x2="{right}" y2="{y:.1}" stroke="#e5e5e5"/><text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"##,
            LEFT - 8.0,
            y + 4.0,
            crate::output::bytes(10_f64.powf(power) as u64)
        )?;
        power += 1.0;
    }
    for tick in 0..=4 {
        let milliseconds = scale.most_ms / 1.05 * f64::from(tick) / 4.0;
        let y = scale.compute(milliseconds) + 4.0;
        writeln!(
            out,
            r##"<text x="{:.1}" y="{y:.1}" fill="{LINE}">{milliseconds:.1}</text>"##,
            right + 8.0
        )?;
    }
    let middle = (TOP + base) / 2.0;
    writeln!(
        out,
        r##"<text transform="translate(16 {middle:.1}) rotate(-90)" text-anchor="middle">bytes an image (f32, logarithmic)</text>"##
    )?;
    writeln!(
        out,
        r##"<text transform="translate({:.1} {middle:.1}) rotate(90)" text-anchor="middle" fill="{LINE}">compute up to the cut, ms an image</text>"##,
        WIDTH - 14.0
    )?;
    writeln!(
        out,
        r##"<line x1="{LEFT}" y1="{base}" x2="{right}" y2="{base}" stroke="#222"/>"##
    )
}

fn bars(out: &mut String, scale: &Scale, study: &HostStudy) -> std::fmt::Result {
    let width = scale.step() * 0.62;
    for (index, cut) in study.profile.cuts.iter().enumerate() {
        let (x, y) = (scale.column(index), scale.bytes(cut.bytes_per_sample as f64));
        let weight = crate::output::bytes(cut.bytes_per_sample);
        writeln!(
            out,
            r##"<rect x="{:.1}" y="{y:.1}" width="{width:.1}" height="{:.1}" fill="{BAR}"><title>{}: {weight}, {:.2} ms</title></rect>"##,
            x - width / 2.0,
            baseline() - y,
            escaped(&cut.name),
            milliseconds(cut)
        )?;
        writeln!(
            out,
            r##"<text transform="translate({:.1} {:.1}) rotate(-40)" text-anchor="end" font-size="11">{}</text>"##,
            x + 4.0,
            baseline() + 14.0,
            escaped(&shortened(&cut.name))
        )?;
    }
    Ok(())
}

fn level(out: &mut String, scale: &Scale, bytes: u64, colour: &str, what: &str) -> std::fmt::Result {
    let (y, right) = (scale.bytes(bytes as f64), WIDTH - RIGHT);
    let weight = crate::output::bytes(bytes);
    writeln!(
        out,
        r##"<line x1="{LEFT}" y1="{y:.1}" x2="{right}" y2="{y:.1}" stroke="{colour}" stroke-dasharray="6 4"/>"##
    )?;
    writeln!(
        out,
        r##"<text x="{:.1}" y="{:.1}" text-anchor="end" fill="{colour}" stroke="#fff" stroke-width="3" paint-order="stroke">{what} {weight}</text>"##,
        right - 4.0,
        y - 5.0
    )
}

fn line(out: &mut String, scale: &Scale, study: &HostStudy) -> std::fmt::Result {
    let points = study.profile.cuts.iter().enumerate();
    let points: Vec<(f64, f64)> = points
        .map(|(index, cut)| (scale.column(index), scale.compute(milliseconds(cut))))
        .collect();
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    writeln!(
        out,
        r##"<polyline points="{}" fill="none" stroke="{LINE}" stroke-width="2"/>"##,
        path.join(" ")
    )?;
    for (x, y) in points {
        writeln!(out, r##"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{LINE}"/>"##)?;
    }
    Ok(())
}

/// The end of a long name, which tells the layers apart.
fn shortened(name: &str) -> String {
    let count = name.chars().count();
    if count <= LONGEST {
        return name.to_owned();
    }
    format!("…{}", name.chars().skip(count + 1 - LONGEST).collect::<String>())
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

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_wire::{CutProfile, Linear, Place, Profile};

    fn study() -> HostStudy {
        let cut = |name: &str, bytes: u64, seconds: f64| CutProfile {
            name: name.to_owned(),
            compute: Linear {
                fixed: 0.0,
                per_sample: seconds,
            },
            busy_seconds_per_sample: seconds,
            bytes_per_sample: bytes,
            encoded: [].into(),
            memory: Linear::default(),
        };
        HostStudy {
            freeze: "b".to_owned(),
            shapes: vec![vec![3], vec![4]],
            object_bytes: 20_000,
            objects: 9,
            input_bytes: 150_528,
            profile: Profile {
                place: Place {
                    machine: "A & B <processor>".to_owned(),
                    device: "cpu".to_owned(),
                    library: "onnxruntime".to_owned(),
                    lanes: 1,
                    threads_per_lane: 1,
                    decode_threads: 1,
                },
                read_seconds_per_sample: 0.0,
                read_busy_seconds_per_sample: 0.0,
                decode_seconds_per_sample: 0.0,
                input: [].into(),
                cuts: vec![cut("/features/a", 800_000, 0.004), cut("b\"", 2_048, 0.010)],
                measured_in_seconds: 1.0,
                measured_at: 0,
                disturbed: false,
            },
        }
    }

    /// The attribute of each element called `element`.
    fn attribute(svg: &str, element: &str, name: &str) -> Vec<f64> {
        let elements = svg.split('<').filter(|text| text.starts_with(element));
        let value = |text: &str| {
            let (_, rest) = text.split_once(&format!(" {name}=\""))?;
            rest.split('"').next()?.parse().ok()
        };
        elements.filter_map(value).collect()
    }

    #[test]
    fn a_figure_has_a_bar_and_a_point_for_each_cut() {
        let svg = svg("net", &study());
        let heights = attribute(&svg, "rect", "height");
        assert_eq!(heights.len(), 3, "the paper and two bars");
        // 800 KB and 2 KB on an axis from 1 KB to 1 MB.
        let whole = baseline() - TOP;
        assert!(
            (heights[1] / whole - (800_f64).log10() / 3.0).abs() < 0.01,
            "{heights:?}"
        );
        assert!(
            (heights[2] / whole - (2.048_f64).log10() / 3.0).abs() < 0.01,
            "{heights:?}"
        );
        let points = attribute(&svg, "circle", "cy");
        assert!(points.len() == 2 && points[1] < points[0], "{points:?}");
        assert!(svg.contains("mean object 20.0 KB") && svg.contains("pixels (u8) 150.5 KB"));
    }

    #[test]
    fn names_cannot_break_the_figure() {
        let svg = svg("<script>", &study());
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
    fn a_study_of_nothing_is_still_a_figure() {
        let mut empty = study();
        empty.profile.cuts.clear();
        (empty.object_bytes, empty.input_bytes) = (0, 0);
        let svg = svg("net", &empty);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
