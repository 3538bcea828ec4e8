use super::table::{Cell, Row, more, table};
use crate::Run;
use crate::chart::{Mark, legend};
use crate::facts::{Compared, compared};
use crate::markup::{bytes, count, duration, escaped, shortened};

pub(super) fn section(out: &mut String, run: &Run) {
    let Some(plan) = &run.plan else {
        return;
    };
    let rows = compared(plan, &run.journal);
    out.push_str("<section><h2>Plan</h2>");
    out.push_str(&format!(
        "<p>Divided at <strong>{}</strong> in {} over a link of {}/s ({}). {}</p>",
        escaped(&shortened(&plan.split, 80)),
        escaped(&plan.encoding),
        bytes(plan.link_bytes_per_second),
        escaped(&shortened(&plan.policy, 80)),
        escaped(&verdict(&rows, plan.iteration_seconds))
    ));
    out.push_str(&legend(Mark::Box, &[(0, "predicted"), (1, "measured")]));
    let longest = rows
        .iter()
        .flat_map(|row| {
            let measured = row.measured.map_or(0.0, |measured| measured.seconds);
            [row.candidate.iteration_seconds, measured]
        })
        .filter(|seconds| seconds.is_finite())
        .fold(0.0, f64::max);
    let shown: Vec<Row> = rows.iter().map(|row| of(row, longest)).collect();
    let header = [
        ("Split", false),
        ("An iteration", false),
        ("Predicted", true),
        ("Measured", true),
        ("Steps", true),
        ("Bound by", false),
        ("Host", true),
        ("Link", true),
        ("Trainer", true),
        ("An image", true),
        ("Whole job", true),
    ];
    out.push_str(&table(&header, &shown));
    more(out, shown.len(), plan.candidates.len() as u64, "candidates");
    out.push_str(
        "<p class=\"soft\">The shortest predicted job stands first. Predicted spreads the job's beginning and end over all iterations; measured is the median \
         of what steps at that split waited and computed, without those of epochs that came from the store where there are others.</p></section>",
    );
}

/// How the chosen split turned out.
fn verdict(rows: &[Compared], predicted: f64) -> String {
    let measured = rows.iter().find(|row| row.chosen).and_then(|row| row.measured);
    match measured {
        Some(measured) if predicted > 0.0 => {
            let off = (measured.seconds / predicted - 1.0) * 100.0;
            let word = if off < 0.0 { "less" } else { "more" };
            format!(
                "Predicted {} an iteration; measured {}, {:.0} % {word}.",
                duration(predicted),
                duration(measured.seconds),
                off.abs()
            )
        }
        _ => format!(
            "Predicted {} an iteration; no step was divided there.",
            duration(predicted)
        ),
    }
}

fn of(row: &Compared, longest: f64) -> Row {
    let candidate = row.candidate;
    let share = |seconds: f64| (seconds / longest * 100.0).clamp(0.0, 100.0);
    let bar = |place: usize, seconds: f64| {
        let wide = if longest > 0.0 && seconds.is_finite() {
            share(seconds)
        } else {
            0.0
        };
        format!(r#"<span class="bar b{place}" style="width:{wide:.1}%"></span>"#)
    };
    let mut bars = bar(0, candidate.iteration_seconds);
    bars.extend(row.measured.map(|measured| bar(1, measured.seconds)));
    let tag = if row.chosen {
        r#"<span class="tag">chosen</span>"#
    } else {
        ""
    };
    let name = format!(
        r#"<span class="name">{}</span> <span class="soft">{}</span>{tag}"#,
        escaped(&shortened(&candidate.split, 60)),
        escaped(&shortened(&candidate.encoding, 20))
    );
    let seconds = |value: f64| Cell::Number(duration(value));
    Row {
        cells: vec![
            Cell::Raw(name),
            Cell::Raw(format!(r#"<div class="bars" aria-hidden="true">{bars}</div>"#)),
            seconds(candidate.iteration_seconds),
            seconds(row.measured.map_or(f64::NAN, |measured| measured.seconds)),
            Cell::Number(
                row.measured
                    .map_or_else(|| "–".to_owned(), |measured| count(measured.steps as u64)),
            ),
            Cell::Text(shortened(&candidate.bottleneck, 20)),
            seconds(candidate.host_seconds),
            seconds(candidate.link_seconds),
            seconds(candidate.trainer_seconds),
            Cell::Number(bytes(candidate.bytes_per_sample)),
            seconds(candidate.total_seconds),
        ],
        best: row.chosen,
    }
}
