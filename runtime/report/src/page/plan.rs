//! Predictions of the plan and measured times.

use super::table::{Cell, PageTable};
use crate::Run;
use crate::chart::{Mark, legend};
use crate::markup::{bytes, count, duration, escaped, shortened};
use crate::run::{RecordedCandidate, RecordedPlan, RunJournal};

/// Number of the best candidates. Chosen and measured candidates are always included.
const SHOWN: usize = 12;

/// A candidate with the measured step time.
struct CandidateComparison<'a> {
    candidate: &'a RecordedCandidate,
    chosen: bool,
    measured: Option<MeasuredSplit>,
}

#[derive(Clone, Copy)]
struct MeasuredSplit {
    /// Median time of a step, including the wait for the batch.
    seconds: f64,
    steps: usize,
}

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
    out.push_str(&legend(Mark::Box, [(0, "predicted"), (1, "measured")]));
    let longest = scale(&rows);
    let header =
        "Split|Iteration|Predicted|Measured|Steps|Bound by|Host|Link|Trainer|Bytes per image|Whole job";
    let mut table = PageTable::new(header.split('|'));
    for row in &rows {
        table.rated_row(row.chosen, cells(row, longest));
    }
    table.write(out, plan.candidates.len(), "candidates");
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

fn cells(row: &CandidateComparison, whole: f64) -> [Cell; 11] {
    let candidate = row.candidate;
    let mut bars = bar(0, candidate.iteration_seconds, whole);
    bars.extend(row.measured.map(|measured| bar(1, measured.seconds, whole)));
    let tag = if row.chosen {
        r#"<span class="tag">chosen</span>"#
    } else {
        ""
    };
    let name = format!(
        r#"{} <span class="soft">{}</span>{tag}"#,
        escaped(&shortened(&candidate.split, 60)),
        escaped(&shortened(&candidate.encoding, 20))
    );
    let seconds = |value: f64| Cell::Number(duration(value));
    let steps = row.measured.map(|measured| count(measured.steps));
    [
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
    ]
}

/// Returns the candidates of `plan` by increasing job time: the best ones, the chosen one, and all with
/// measurements.
fn compare_candidates<'a>(plan: &'a RecordedPlan, journal: &RunJournal) -> Vec<CandidateComparison<'a>> {
    let mut ranked: Vec<&RecordedCandidate> = plan.candidates.iter().collect();
    let cost = |candidate: &RecordedCandidate| {
        if candidate.total_seconds > 0.0 {
            candidate.total_seconds
        } else {
            candidate.iteration_seconds
        }
    };
    ranked.sort_by(|left, right| cost(left).total_cmp(&cost(right)));
    // Steps do not record the encoding. A measurement is assigned to the chosen candidate of the split, or to
    // the best candidate if none was chosen.
    let mut taken = Vec::new();
    let mut rows: Vec<CandidateComparison> = Vec::new();
    for (place, candidate) in ranked.into_iter().enumerate() {
        let split = candidate.split.as_str();
        let chosen = plan.chose(candidate);
        let is_measured = if split == plan.split {
            chosen
        } else {
            !taken.contains(&split)
        };
        taken.push(split);
        let measured = if is_measured {
            measured_at(journal, split)
        } else {
            None
        };
        if place < SHOWN || chosen || measured.is_some() {
            rows.push(CandidateComparison {
                candidate,
                chosen,
                measured,
            });
        }
    }
    rows
}

/// Measures the steps at a split. Steps with cached features are faster and do not count.
fn measured_at(journal: &RunJournal, split: &str) -> Option<MeasuredSplit> {
    let place = journal.steps.splits().iter().position(|known| known == split)?;
    let steps = journal.steps.sampled().iter();
    let fetched = steps.filter(|step| !step.has_cached_features && usize::from(step.split) == place);
    let mut times: Vec<f64> = fetched
        .map(|step| f64::from(step.waited) + f64::from(step.computed))
        .collect();
    times.sort_by(f64::total_cmp);
    let seconds = times.get(times.len() / 2).copied()?;
    Some(MeasuredSplit {
        seconds,
        steps: times.len(),
    })
}
