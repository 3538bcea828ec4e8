//! Timeline of a job in equal intervals: waiting, computing and received bytes.

use super::table::{Cell, PageTable};
use crate::chart::{Mark, Span, area, legend, marks, spans};
use crate::markup::{bytes, duration, escaped, percent, shortened};
use crate::run::{Moment, MomentKind, RecordedStep, RunJournal};

/// Number of intervals.
const PARTS: usize = 300;
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

pub(super) fn section(out: &mut String, journal: &RunJournal) {
    let seconds = journal.duration;
    if journal.steps.sampled().is_empty() || seconds <= 0.0 {
        return;
    }
    out.push_str("<section><h2>Timeline</h2>");
    let [waiting, computing, rates] = intervals(journal);
    let [waited, computed] = [&waiting, &computing].map(|parts| parts.iter().sum::<f64>() / PARTS as f64);
    out.push_str(&format!(
        "<p>Of {}, the trainer spent {} computing, {} waiting for batches, and {} on other work: measuring, validating, writing.</p>",
        duration(seconds),
        percent(computed),
        percent(waited),
        percent((1.0 - computed - waited).max(0.0))
    ));
    out.push_str(&legend(Mark::Box, [(2, "computing"), (1, "waiting")]));
    out.push_str(r#"<div class="lanes">"#);
    let title = "Trainer over the job: computing, and waiting for batches";
    lane(
        out,
        "trainer",
        &area("tall", title, &[(2, &computing), (1, &waiting)]),
    );
    let most = rates.iter().copied().fold(0.0, f64::max);
    if most > 0.0 {
        let shares = rates.map(|rate| rate / most);
        let rate = bytes(most);
        let title = format!("Bytes of training batches over the job, up to {rate}/s");
        let strip = area("mid", &title, &[(0, &shares)]);
        lane(out, &format!("link, up to {rate}/s"), &strip);
    }
    periods(out, journal);
    events(out, journal);
    times(out, seconds);
    out.push_str("</div>");
    write_moments(out, journal);
    out.push_str("</section>");
}

/// Returns waiting and computing time as fractions of each interval, and bytes received per second by
/// training steps. The remaining time is measuring, validation and writing.
fn intervals(journal: &RunJournal) -> [[f64; PARTS]; 3] {
    let part = journal.duration / PARTS as f64;
    let weight = journal.steps.stride() as f64;
    let [mut waited, mut computed, mut bytes] = [[0.0; PARTS]; 3];
    for step in journal.steps.sampled() {
        let computing = step.at - f64::from(step.computed);
        let waiting = computing - f64::from(step.waited);
        spread(&mut waited, part, waiting, computing, weight);
        spread(&mut computed, part, computing, step.at, weight);
        let took = step.at - waiting;
        if took > 0.0 {
            let rate = f64::from(step.bytes) / took;
            spread(&mut bytes, part, waiting, step.at, rate * weight);
        }
    }
    for (waited, computed) in waited.iter_mut().zip(&mut computed) {
        // Limit the sum to 1, because each step represents omitted steps, and times may overlap.
        let sum = (*waited + *computed).max(1.0);
        *waited /= sum;
        *computed /= sum;
    }
    [waited, computed, bytes]
}

/// Adds the overlap of `from..to` with each interval as a fraction of the interval.
fn spread(parts: &mut [f64], part: f64, from: f64, to: f64, weight: f64) {
    let from = from.max(0.0) / part;
    let to = to.max(0.0) / part;
    let first = from as usize;
    let last = (to as usize).min(parts.len().saturating_sub(1));
    for (place, share) in parts.iter_mut().enumerate().take(last + 1).skip(first) {
        let begin = place as f64;
        *share += ((begin + 1.0).min(to) - begin.max(from)).max(0.0) * weight;
    }
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

/// Adds lanes with the splits, the cached features and the unavailable hosts.
fn periods(out: &mut String, journal: &RunJournal) {
    let splits = splits(journal);
    if splits.len() > 1 {
        lane(
            out,
            "split",
            &spans("Split over the job", &splits, journal.duration),
        );
        let names = journal.steps.splits().iter().enumerate().take(12);
        let key = legend(Mark::Box, names.map(|(place, name)| (place, shortened(name, 60))));
        out.push_str(&format!("<span></span><div>{key}</div>"));
    }
    let cached = "Share of activations from the feature cache";
    for (name, title, periods) in [
        ("cached", cached, cached_features(journal)),
        ("hosts down", "Unavailable hosts", down(journal)),
    ] {
        if !periods.is_empty() {
            lane(out, name, &spans(title, &periods, journal.duration));
        }
    }
}

/// Returns the splits in use.
fn splits(journal: &RunJournal) -> Vec<Span> {
    let steps = journal.steps.sampled();
    let spans = steps.chunk_by(|left, right| left.split == right.split);
    let spans = spans.filter_map(|steps: &[RecordedStep]| {
        let first = steps.first()?;
        Some(Span {
            from: first.at - f64::from(first.computed) - f64::from(first.waited),
            to: steps.last()?.at,
            place: usize::from(first.split),
            opacity: 1.0,
            text: format!("split {}", shortened(journal.steps.split(first), 80)),
        })
    });
    bounded(spans.collect())
}

/// Returns the epochs with the fraction of cached features. Empty if no features were cached.
fn cached_features(journal: &RunJournal) -> Vec<Span> {
    if journal.trained().all(|epoch| epoch.cached_rows == 0) {
        return Vec::new();
    }
    let spans = journal.epochs.iter().map(|epoch| {
        let trained = &epoch.trained;
        let rows = (trained.cached_rows + trained.fetched_rows).max(1);
        let share = trained.cached_rows as f64 / rows as f64;
        Span {
            from: epoch.at - trained.seconds,
            to: epoch.at,
            place: 3,
            opacity: share,
            text: format!("epoch {}: {} from the cache", trained.epoch, percent(share)),
        }
    });
    bounded(spans.collect())
}

/// Returns the times with unavailable hosts.
fn down(journal: &RunJournal) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut count = 0_u32;
    let mut since = 0.0;
    let changes = journal.moments.iter().filter_map(|moment| match moment.kind {
        MomentKind::HostDown => Some((moment.at, true)),
        MomentKind::HostUp => Some((moment.at, false)),
        _ => None,
    });
    for (at, fell) in changes.chain([(journal.duration, false)]) {
        if count > 0 {
            spans.push(Span {
                from: since,
                to: at,
                place: 5,
                opacity: 1.0,
                text: format!("{count} hosts down"),
            });
        }
        count = if fell { count + 1 } else { count.saturating_sub(1) };
        since = at;
    }
    bounded(spans)
}

/// Limits the number of spans by removing the shortest ones.
fn bounded(mut spans: Vec<Span>) -> Vec<Span> {
    if spans.len() > PARTS {
        spans.sort_by(|left, right| (right.to - right.from).total_cmp(&(left.to - left.from)));
        spans.truncate(PARTS);
        spans.sort_by(|left, right| left.from.total_cmp(&right.from));
    }
    spans
}

fn events(out: &mut String, journal: &RunJournal) {
    if journal.epochs.len() <= MARKS {
        let epochs = journal.epochs.iter().map(|epoch| {
            let words = format!("epoch {} ends", epoch.trained.epoch);
            (epoch.at / journal.duration, words)
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
            let found = found.map(|moment| (moment.at / journal.duration, &moment.text));
            lane(out, name, &marks(title, color, found));
        }
    }
}

/// Adds a table of events. If there are too many, retries are omitted first.
fn write_moments(out: &mut String, journal: &RunJournal) {
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
    let mut table = PageTable::new(["Time", "Event", ""]);
    for moment in shown {
        table.row([
            Cell::Number(duration(moment.at)),
            Cell::Raw(moment.kind.to_string()),
            Cell::Raw(escaped(&moment.text)),
        ]);
    }
    out.push_str("<details><summary>Events</summary>");
    table.write(out, all, "events");
    out.push_str("</details>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_spread_over_the_parts_it_lies_in() {
        let mut parts = vec![0.0; 4];
        spread(&mut parts, 2.0, 1.0, 5.0, 1.0);
        assert_eq!(parts, [0.5, 1.0, 0.5, 0.0]);
        spread(&mut parts, 2.0, 7.0, 99.0, 1.0);
        assert_eq!(parts, [0.5, 1.0, 0.5, 0.5]);
        spread(&mut parts, 2.0, -3.0, -1.0, 1.0);
        assert_eq!(parts, [0.5, 1.0, 0.5, 0.5]);
    }
}
