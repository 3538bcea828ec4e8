use super::table::{Cell, Row, add_omitted_note, table};
use crate::chart::{Mark, area, legend, marks, spans};
use crate::facts::{Span, Timeline};
use crate::markup::{bytes, duration, escaped, percent, shortened};
use crate::run::{Journal, Moment, MomentKind};

/// Maximum number of marks in a strip, and maximum number of events in the table.
const MARKS: usize = 300;
const TOLD: usize = 60;

/// Maximum number of labels below the timeline, limited by the width of phones, and distances between labels
/// in seconds.
const TIMES: f64 = 5.0;
const STEPS: [f64; 20] = [
    0.01, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0,
    7200.0, 14_400.0, 43_200.0,
];

pub(super) fn section(out: &mut String, journal: &Journal) {
    let Some(line) = Timeline::from_journal(journal) else {
        return;
    };
    out.push_str("<section><h2>Timeline</h2>");
    let mean = |parts: &[f64]| parts.iter().sum::<f64>() / parts.len().max(1) as f64;
    let computed = mean(&line.computed);
    let waited = mean(&line.waited);
    out.push_str(&format!(
        "<p>Of {}, the trainer spent {} computing, {} waiting for batches, and {} on other work: measuring, validating, writing.</p>",
        duration(line.seconds),
        percent(computed),
        percent(waited),
        percent((1.0 - computed - waited).max(0.0))
    ));
    out.push_str(&legend(Mark::Box, &[(2, "computing"), (1, "waiting")]));
    out.push_str(r#"<div class="lanes">"#);
    let layers: [(usize, &[f64]); 2] = [(2, &line.computed), (1, &line.waited)];
    lane(
        out,
        "trainer",
        &area(
            "tall",
            "Trainer over the job: computing, and waiting for batches",
            &layers,
        ),
    );
    received(out, &line);
    stretches(out, journal, &line);
    events(out, journal, &line);
    times(out, line.seconds);
    out.push_str("</div>");
    write_moments(out, journal);
    out.push_str("</section>");
}

/// Adds round times below the timeline.
fn times(out: &mut String, seconds: f64) {
    let step = STEPS
        .into_iter()
        .find(|step| seconds / step <= TIMES)
        .unwrap_or_else(|| (seconds / TIMES / 86_400.0).ceil() * 86_400.0);
    out.push_str(r#"<div class="times">"#);
    for place in 0..=TIMES as u32 {
        let at = step * f64::from(place);
        let share = at / seconds;
        let class = match share {
            ..0.02 => r#" class="early""#,
            0.95..=1.0 => r#" class="late""#,
            ..1.0 => "",
            _ => break,
        };
        out.push_str(&format!(
            r#"<span{class} style="left:{:.2}%">{}</span>"#,
            share * 100.0,
            escaped(&duration(at).replace(".0 ", " "))
        ));
    }
    out.push_str("</div>");
}

fn lane(out: &mut String, name: &str, strip: &str) {
    out.push_str(&format!("<span>{}</span>{strip}", escaped(name)));
}

fn received(out: &mut String, line: &Timeline) {
    let most = line.bytes.iter().copied().fold(0.0, f64::max);
    if most <= 0.0 {
        return;
    }
    let shares: Vec<f64> = line.bytes.iter().map(|rate| rate / most).collect();
    let title = format!("Bytes of training batches over the job, up to {}/s", bytes(most));
    lane(
        out,
        &format!("link, up to {}/s", bytes(most)),
        &area("mid", &title, &[(0, &shares)]),
    );
}

fn stretches(out: &mut String, journal: &Journal, line: &Timeline) {
    if line.splits.len() > 1 {
        let strip = spans("Split over the job", &line.splits, |span| {
            (
                span.value as usize,
                1.0,
                format!("split {}", shortened(&span.text, 80)),
            )
        });
        lane(out, "split", &strip);
        let names = journal.steps.splits().iter().enumerate().take(12);
        let names: Vec<(usize, String)> = names.map(|(place, name)| (place, shortened(name, 60))).collect();
        let entries: Vec<(usize, &str)> = names
            .iter()
            .map(|(place, name)| (*place, name.as_str()))
            .collect();
        out.push_str(&format!(
            "<span></span><div>{}</div>",
            legend(Mark::Box, &entries)
        ));
    }
    if line.cached_fraction.iter().any(|span| span.value > 0.0) {
        let look = |span: &Span| {
            (
                3,
                span.value,
                format!("{}: {} from the cache", span.text, percent(span.value)),
            )
        };
        lane(
            out,
            "cached",
            &spans(
                "Share of activations from the feature cache",
                &line.cached_fraction,
                look,
            ),
        );
    }
    if !line.down.is_empty() {
        let look = |span: &Span| (5, 1.0, format!("{} hosts down", span.value));
        lane(out, "hosts down", &spans("Unavailable hosts", &line.down, look));
    }
}

fn events(out: &mut String, journal: &Journal, line: &Timeline) {
    let epochs: Vec<(f64, String)> = journal
        .epochs
        .iter()
        .map(|epoch| (epoch.at / line.seconds, format!("epoch {} ends", epoch.epoch)))
        .collect();
    if epochs.len() <= MARKS {
        let epochs: Vec<(f64, &str)> = epochs.iter().map(|(at, words)| (*at, words.as_str())).collect();
        lane(out, "epochs", &marks("Ends of epochs", 5, &epochs));
    }
    for (kinds, name, title, color) in [
        (&[MomentKind::Replan][..], "replans", "Changes of the split", 1),
        (&[MomentKind::Unfreeze], "unfreezing", "Unfreezing", 3),
        (
            &[MomentKind::HostDown, MomentKind::HostUp],
            "hosts",
            "Hosts down and up",
            0,
        ),
        (&[MomentKind::Retry], "retries", "Retries", 4),
        (&[MomentKind::Store], "store", "Feature cache and store", 3),
        (&[MomentKind::Warning], "warnings", "Warnings", 1),
    ] {
        let of = journal
            .moments
            .iter()
            .filter(|moment| kinds.contains(&moment.kind));
        let of: Vec<(f64, &str)> = of
            .take(MARKS)
            .map(|moment| (moment.at / line.seconds, moment.text.as_str()))
            .collect();
        if !of.is_empty() {
            lane(out, name, &marks(title, color, &of));
        }
    }
}

/// Adds a table of events. If there are too many, retries are omitted first.
fn write_moments(out: &mut String, journal: &Journal) {
    let rare = |moment: &&Moment| moment.kind != MomentKind::Retry;
    let mut shown: Vec<&Moment> = journal.moments.iter().filter(rare).take(TOLD).collect();
    let left = TOLD - shown.len();
    shown.extend(journal.moments.iter().filter(|moment| !rare(moment)).take(left));
    shown.sort_by(|left, right| left.at.total_cmp(&right.at));
    if shown.is_empty() {
        return;
    }
    let rows: Vec<Row> = shown
        .iter()
        .map(|moment| Row {
            cells: vec![
                Cell::Number(duration(moment.at)),
                Cell::Raw(word(moment.kind).to_owned()),
                Cell::Raw(escaped(&moment.text)),
            ],
            best: false,
        })
        .collect();
    out.push_str("<details><summary>Events</summary>");
    out.push_str(&table(&[("Time", true), ("Event", false), ("", false)], &rows));
    let all = journal.moments.iter().map(|moment| moment.kind);
    let retries = journal.count(MomentKind::Retry);
    let all = all.filter(|kind| *kind != MomentKind::Retry).count() as u64 + retries;
    add_omitted_note(out, rows.len(), all, "events");
    out.push_str("</details>");
}

fn word(kind: MomentKind) -> &'static str {
    match kind {
        MomentKind::Split => "split",
        MomentKind::Replan => "replan",
        MomentKind::Unfreeze => "unfreeze",
        MomentKind::HostDown => "host down",
        MomentKind::HostUp => "host up",
        MomentKind::Retry => "retry",
        MomentKind::Store => "store",
        MomentKind::Warning => "warning",
    }
}
