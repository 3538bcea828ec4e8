use super::table::{Cell, Row, add_omitted_note, table};
use crate::Run;
use crate::chart::{Mark, legend};
use crate::facts::{CandidateComparison, compare_candidates};
use crate::markup::{bytes, count, duration, escaped, shortened};

pub(super) fn section(out: &mut String, run: &Run) {
    let Some(plan) = &run.plan else {
        return;
    };
    let rows = compare_candidates(plan, &run.journal);
    out.push_str("<section><h2>Plan</h2>");
    out.push_str(&format!(
        "<p>Split at <strong>{}</strong> in {} by the policy {}, over a link of {}/s. {}</p>",
        escaped(&shortened(&plan.split, 80)),
        escaped(&plan.encoding),
        escaped(&shortened(&plan.policy, 80)),
        bytes(plan.link_bytes_per_second),
        escaped(&verdict(&rows, plan.iteration_seconds))
    ));
    out.push_str(&legend(Mark::Box, &[(0, "predicted"), (1, "measured")]));
    let longest = scale(&rows);
    let shown: Vec<Row> = rows.iter().map(|row| candidate_row(row, longest)).collect();
    let header = [
        ("Split", false),
        ("Iteration", false),
        ("Predicted", true),
        ("Measured", true),
        ("Steps", true),
        ("Bound by", false),
        ("Host", true),
        ("Link", true),
        ("Trainer", true),
        ("Bytes per image", true),
        ("Whole job", true),
    ];
    out.push_str(&table(&header, &shown));
    add_omitted_note(out, shown.len(), plan.candidates.len() as u64, "candidates");
    out.push_str(
        "<p class=\"soft\">Rows are sorted by predicted job time. Predicted times include a share of the start and the end of the job. Measured times are the median \
         of waiting and computing over the steps at the split without cached features. Faded bars are longer than shown.</p></section>",
    );
}

/// Returns the time of a full bar in seconds. This is the longest time, unless it exceeds five times the
/// shortest, because short times would be indistinguishable.
fn scale(rows: &[CandidateComparison]) -> f64 {
    let times = || {
        let times = rows.iter().flat_map(|row| {
            let measured = row.measured.map_or(0.0, |measured| measured.seconds);
            [row.candidate.iteration_seconds, measured]
        });
        times.filter(|seconds| seconds.is_finite() && *seconds > 0.0)
    };
    let shortest = times().fold(f64::INFINITY, f64::min);
    times().fold(0.0, f64::max).min(shortest * 5.0)
}

/// Compares the prediction for the chosen split with the measurement.
fn verdict(rows: &[CandidateComparison], predicted: f64) -> String {
    let measured = rows.iter().find(|row| row.chosen).and_then(|row| row.measured);
    let said = format!("Predicted {} per iteration", duration(predicted));
    match measured {
        Some(measured) if predicted > 0.0 => {
            let off = (measured.seconds / predicted - 1.0) * 100.0;
            let word = if off < 0.0 { "less" } else { "more" };
            let seconds = duration(measured.seconds);
            format!("{said}; measured {seconds}, {:.0} % {word}.", off.abs())
        }
        _ => format!(
            "{said}; not measured, because no batch at the split was fetched without cached features."
        ),
    }
}

fn bar(place: usize, seconds: f64, whole: f64) -> String {
    let share = if seconds.is_finite() {
        (seconds / whole).max(0.0)
    } else {
        0.0
    };
    // Bars that exceed the scale fade out.
    let over = if share > 1.0 { " over" } else { "" };
    format!(
        r#"<span class="bar b{place}{over}" style="width:{:.1}%"></span>"#,
        share.min(1.0) * 100.0
    )
}

fn candidate_row(row: &CandidateComparison, whole: f64) -> Row {
    let candidate = row.candidate;
    let mut bars = bar(0, candidate.iteration_seconds, whole);
    bars.extend(row.measured.map(|measured| bar(1, measured.seconds, whole)));
    let tag = |on: bool, word: &str| {
        if on {
            format!(r#"<span class="tag">{word}</span>"#)
        } else {
            String::new()
        }
    };
    let name = format!(
        r#"{} <span class="soft">{}</span>{}"#,
        escaped(&shortened(&candidate.split, 60)),
        escaped(&shortened(&candidate.encoding, 20)),
        tag(row.chosen, "chosen")
    );
    let seconds = |value: f64| Cell::Number(duration(value));
    let steps = row.measured.map(|measured| count(measured.steps as u64));
    Row {
        cells: vec![
            Cell::Raw(name),
            Cell::Raw(format!(r#"<div class="bars" aria-hidden="true">{bars}</div>"#)),
            seconds(candidate.iteration_seconds),
            seconds(row.measured.map_or(f64::NAN, |measured| measured.seconds)),
            Cell::Number(steps.unwrap_or_else(|| "–".to_owned())),
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
