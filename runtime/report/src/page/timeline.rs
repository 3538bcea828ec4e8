use super::table::{Cell, Table};
use crate::chart::{Mark, area, legend, marks, spans};
use crate::facts::Timeline;
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
    out.push_str(&legend(Mark::Box, [(2, "computing"), (1, "waiting")]));
    out.push_str(r#"<div class="lanes">"#);
    let layers: [(usize, &[f64]); 2] = [(2, &line.computed), (1, &line.waited)];
    let title = "Trainer over the job: computing, and waiting for batches";
    lane(out, "trainer", &area("tall", title, &layers));
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
    let rate = bytes(most);
    let title = format!("Bytes of training batches over the job, up to {rate}/s");
    let strip = area("mid", &title, &[(0, &shares)]);
    lane(out, &format!("link, up to {rate}/s"), &strip);
}

fn stretches(out: &mut String, journal: &Journal, line: &Timeline) {
    if line.splits.len() > 1 {
        lane(out, "split", &spans("Split over the job", &line.splits));
        let names = journal.steps.splits().iter().enumerate().take(12);
        let key = legend(Mark::Box, names.map(|(place, name)| (place, shortened(name, 60))));
        out.push_str(&format!("<span></span><div>{key}</div>"));
    }
    for (name, title, periods) in [
        (
            "cached",
            "Share of activations from the feature cache",
            &line.cached_fraction,
        ),
        ("hosts down", "Unavailable hosts", &line.down),
    ] {
        if !periods.is_empty() {
            lane(out, name, &spans(title, periods));
        }
    }
}

fn events(out: &mut String, journal: &Journal, line: &Timeline) {
    if journal.epochs.len() <= MARKS {
        let epochs = journal.epochs.iter().map(|epoch| {
            let words = format!("epoch {} ends", epoch.trained.epoch);
            (epoch.at / line.seconds, words)
        });
        lane(out, "epochs", &marks("Ends of epochs", 5, epochs));
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
        let moments = journal.moments.iter();
        let mut found = moments.filter(|moment| kinds.contains(&moment.kind)).peekable();
        if found.peek().is_some() {
            let found = found.take(MARKS);
            let found = found.map(|moment| (moment.at / line.seconds, &moment.text));
            lane(out, name, &marks(title, color, found));
        }
    }
}

/// Adds a table of events. If there are too many, retries are omitted first.
fn write_moments(out: &mut String, journal: &Journal) {
    let (retries, rare): (Vec<&Moment>, Vec<&Moment>) = journal
        .moments
        .iter()
        .partition(|moment| moment.kind == MomentKind::Retry);
    let all = rare.len() + journal.count(MomentKind::Retry) as usize;
    let mut shown: Vec<&Moment> = rare.into_iter().chain(retries).take(TOLD).collect();
    shown.sort_by(|left, right| left.at.total_cmp(&right.at));
    if shown.is_empty() {
        return;
    }
    let mut table = Table::new(["Time", "Event", ""]);
    for moment in shown {
        table.row(
            false,
            [
                Cell::Number(duration(moment.at)),
                Cell::Raw(word(moment.kind).to_owned()),
                Cell::Raw(escaped(&moment.text)),
            ],
        );
    }
    out.push_str("<details><summary>Events</summary>");
    table.write(out, all, "events");
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
