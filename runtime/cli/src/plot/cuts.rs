//! A network's cuts: bars for the bytes of an image at each, logarithmic, a line for the compute up to there, and what an object and
//! its decoded pixels weigh.

use super::{COLOURS, LEFT, Mark, RIGHT, TOP, WIDTH, begin, escaped, legend, plain, tick};
use frostline_trainer::HostStudy;
use frostline_wire::CutProfile;
use std::fmt::Write;

/// Where the bars stand.
const BASE: f64 = 430.0;
const BAR: &str = COLOURS[0];
const LINE: &str = COLOURS[1];
const OBJECT: &str = COLOURS[2];
const INPUT: &str = COLOURS[3];

/// The longest name of a cut that is written out.
const LONGEST: usize = 26;

/// The least distance of two names, so that they do not run into each other.
const APART: f64 = 15.0;

/// Rows of the batch whose time is drawn.
const BATCH: f64 = 16.0;

/// The figure of `study`, titled with the network's name.
pub(crate) fn cuts(name: &str, study: &HostStudy) -> String {
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
    /// Milliseconds between ticks, and at the top.
    tick: f64,
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
        let most = cuts.iter().map(milliseconds).fold(0.0, f64::max).max(1e-3);
        let tick = tick(most, 5);
        Self {
            low,
            high: largest.log10().ceil().max(low + 1.0),
            tick,
            most_ms: (most / tick).ceil() * tick,
            cuts: cuts.len().max(1),
        }
    }

    fn bytes(&self, bytes: f64) -> f64 {
        let share = (bytes.max(1.0).log10() - self.low) / (self.high - self.low);
        BASE - share.clamp(0.0, 1.0) * (BASE - TOP)
    }

    fn compute(&self, milliseconds: f64) -> f64 {
        BASE - milliseconds / self.most_ms * (BASE - TOP)
    }

    fn step(&self) -> f64 {
        (WIDTH - LEFT - RIGHT) / self.cuts as f64
    }

    /// The middle of a cut's column.
    fn column(&self, index: usize) -> f64 {
        LEFT + self.step() * (index as f64 + 0.5)
    }
}

/// Room for the cuts' names, which stand askew.
fn below(study: &HostStudy) -> f64 {
    let letters = study.profile.cuts.iter().map(|cut| cut.name.chars().count());
    36.0 + letters.max().unwrap_or(0).min(LONGEST) as f64 * 4.6
}

fn milliseconds(cut: &CutProfile) -> f64 {
    cut.compute.at(BATCH) / BATCH * 1e3
}

fn draw(out: &mut String, name: &str, study: &HostStudy) -> std::fmt::Result {
    let scale = Scale::of(study);
    let platform = &study.profile.platform;
    begin(
        out,
        BASE + below(study),
        &format!("{name}: bytes and compute up to each cut"),
        &format!(
            "measured on {}, threads of a lane: {}, batches of {BATCH:.0}",
            platform.machine, platform.threads_per_lane
        ),
    )?;
    let weight = crate::output::bytes;
    legend(
        out,
        &[
            (Mark::Bar, BAR, "bytes of an image at the cut".to_owned()),
            (Mark::Line, LINE, "compute up to it".to_owned()),
            (
                Mark::Dashes,
                OBJECT,
                format!("stored image, {}", weight(study.object_bytes)),
            ),
            (
                Mark::Dashes,
                INPUT,
                format!("its pixels, {}", weight(study.input_bytes)),
            ),
        ],
    )?;
    axes(out, &scale)?;
    bars(out, &scale, study)?;
    level(out, &scale, study.object_bytes, OBJECT)?;
    level(out, &scale, study.input_bytes, INPUT)?;
    line(out, &scale, study)?;
    writeln!(out, "</svg>")
}

fn axes(out: &mut String, scale: &Scale) -> std::fmt::Result {
    let right = WIDTH - RIGHT;
    for power in scale.low as i32..=scale.high as i32 {
        let bytes = 10_f64.powi(power);
        let y = scale.bytes(bytes);
        writeln!(
            out,
            r#"<line class="grid" x1="{LEFT}" y1="{y:.1}" x2="{right}" y2="{y:.1}"/><text class="soft" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            LEFT - 8.0,
            y + 4.0,
            crate::output::bytes(bytes as u64).replace(".0 ", " ")
        )?;
    }
    for index in 0..=(scale.most_ms / scale.tick).round() as u32 {
        let milliseconds = f64::from(index) * scale.tick;
        let y = scale.compute(milliseconds) + 4.0;
        writeln!(
            out,
            r#"<text x="{:.1}" y="{y:.1}" fill="{LINE}">{}</text>"#,
            right + 8.0,
            plain(milliseconds)
        )?;
    }
    let middle = (TOP + BASE) / 2.0;
    writeln!(
        out,
        r#"<text class="soft" transform="translate(18 {middle:.1}) rotate(-90)" text-anchor="middle">bytes an image (f32, logarithmic)</text>"#
    )?;
    writeln!(
        out,
        r#"<text transform="translate({:.1} {middle:.1}) rotate(90)" text-anchor="middle" fill="{LINE}">milliseconds an image</text>"#,
        WIDTH - 22.0
    )?;
    writeln!(
        out,
        r#"<line class="axis" x1="{LEFT}" y1="{BASE}" x2="{right}" y2="{BASE}"/>"#
    )
}

fn bars(out: &mut String, scale: &Scale, study: &HostStudy) -> std::fmt::Result {
    let width = scale.step() * 0.62;
    let named = (APART / scale.step()).ceil().max(1.0) as usize;
    let last = study.profile.cuts.len().saturating_sub(1);
    for (index, cut) in study.profile.cuts.iter().enumerate() {
        let (x, y) = (scale.column(index), scale.bytes(cut.bytes_per_sample as f64));
        let weight = crate::output::bytes(cut.bytes_per_sample);
        writeln!(
            out,
            r#"<rect class="bar" x="{:.1}" y="{y:.1}" width="{width:.1}" height="{:.1}" fill="{BAR}" fill-opacity="0.65"><title>{}: {weight}, {:.2} ms</title></rect>"#,
            x - width / 2.0,
            BASE - y,
            escaped(&cut.name),
            milliseconds(cut)
        )?;
        // Counted from the last, which is the freeze cut.
        if (last - index).is_multiple_of(named) {
            writeln!(
                out,
                r#"<text class="ink" transform="translate({:.1} {:.1}) rotate(-40)" text-anchor="end" font-size="12">{}</text>"#,
                x + 4.0,
                BASE + 16.0,
                escaped(&shortened(&cut.name))
            )?;
        }
    }
    Ok(())
}

fn level(out: &mut String, scale: &Scale, bytes: u64, colour: &str) -> std::fmt::Result {
    let (y, right) = (scale.bytes(bytes as f64), WIDTH - RIGHT);
    writeln!(
        out,
        r#"<line x1="{LEFT}" y1="{y:.1}" x2="{right}" y2="{y:.1}" stroke="{colour}" stroke-width="2" stroke-dasharray="6 4"/>"#
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
        r#"<polyline points="{}" fill="none" stroke="{LINE}" stroke-width="2.5"/>"#,
        path.join(" ")
    )?;
    for (x, y) in points {
        writeln!(out, r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.5" fill="{LINE}"/>"#)?;
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

#[cfg(test)]
mod tests {
    use super::super::attribute;
    use super::*;
    use frostline_wire::{Linear, Platform, Profile};

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
                platform: Platform {
                    machine: "A & B <processor>".to_owned(),
                    device: "cpu".to_owned(),
                    library: "onnxruntime".to_owned(),
                    lanes: 1,
                    threads_per_lane: 1,
                    decode_threads: 1,
                    rows: 16,
                },
                read_seconds_per_sample: 0.0,
                reads_at_once: 8,
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

    #[test]
    fn a_figure_has_a_bar_and_a_point_for_each_cut() {
        let svg = cuts("net", &study());
        let heights = attribute(&svg, "rect class=\"bar\"", "height");
        assert_eq!(heights.len(), 2);
        // 800 KB and 2 KB on an axis from 1 KB to 1 MB.
        let whole = BASE - TOP;
        assert!(
            (heights[0] / whole - (800_f64).log10() / 3.0).abs() < 0.01,
            "{heights:?}"
        );
        assert!(
            (heights[1] / whole - (2.048_f64).log10() / 3.0).abs() < 0.01,
            "{heights:?}"
        );
        let points = attribute(&svg, "circle", "cy");
        assert!(points.len() == 2 && points[1] < points[0], "{points:?}");
        assert!(svg.contains("stored image, 20.0 KB") && svg.contains("its pixels, 150.5 KB"));
    }

    #[test]
    fn the_axis_of_milliseconds_has_round_numbers() {
        let mut study = study();
        study.profile.cuts[1].compute.per_sample = 0.0019 / 1.05;
        study.profile.cuts[0].compute.per_sample = 0.0004;
        let svg = cuts("net", &study);
        let labels: Vec<&str> = svg
            .lines()
            .filter_map(|line| line.strip_prefix("<text x=\"884.0\""))
            .filter_map(|line| line.split(['>', '<']).nth(1))
            .collect();
        assert_eq!(labels, ["0", "0.5", "1", "1.5", "2"]);
    }

    #[test]
    fn of_many_cuts_so_many_are_named_as_have_room() {
        let mut study = study();
        let one = study.profile.cuts[0].clone();
        study.profile.cuts = (0..200)
            .map(|index| CutProfile {
                name: format!("block{index}"),
                ..one.clone()
            })
            .collect();
        let svg = cuts("net", &study);
        let names: Vec<&str> = svg.lines().filter(|line| line.contains("rotate(-40)")).collect();
        assert!((30..=60).contains(&names.len()), "{}", names.len());
        assert!(
            names.last().unwrap().contains(">block199<"),
            "the freeze cut is named"
        );
    }

    #[test]
    fn names_cannot_break_the_figure() {
        let svg = cuts("<script>", &study());
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
        let svg = cuts("net", &empty);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
