use super::table::add_figure;
use crate::chart::{Columns, columns};
use crate::markup::{bytes, count, duration, escaped, percent, short_duration};
use crate::run::RunJournal;
use frostline_job::Received;

pub(super) fn section(out: &mut String, journal: &RunJournal) {
    let received = journal.done.as_ref().map(|done| done.received);
    if journal.epochs.is_empty() && received.is_none() {
        return;
    }
    out.push_str("<section><h2>Time, bytes and reuse</h2>");
    out.push_str(r#"<div class="grid2">"#);
    time(out, journal);
    traffic(out, journal);
    reuse(out, journal);
    if let Some(received) = received {
        purposes(out, &received);
    }
    out.push_str("</div></section>");
}

fn time(out: &mut String, journal: &RunJournal) {
    let of = journal.trained().map(|epoch| {
        let waited = epoch.waited_seconds.clamp(0.0, epoch.seconds.max(0.0));
        (f64::from(epoch.epoch), [epoch.seconds - waited, waited])
    });
    let chart = columns(&Columns {
        title: "Seconds per epoch spent waiting for batches, and other time",
        names: ["other", "waiting for batches"],
        columns: &of.collect::<Vec<_>>(),
        ticked: short_duration,
        shown: duration,
    });
    add_figure(out, "Time per epoch", chart, "");
}

fn traffic(out: &mut String, journal: &RunJournal) {
    let of = journal.trained();
    let of = of.map(|epoch| (f64::from(epoch.epoch), [epoch.bytes_received as f64, 0.0]));
    let chart = columns(&Columns {
        title: "Bytes received per epoch, including validation",
        names: ["received", ""],
        columns: &of.collect::<Vec<_>>(),
        ticked: |amount| bytes(amount).replace(".0 ", " "),
        shown: bytes,
    });
    add_figure(out, "Bytes per epoch, including validation", chart, "");
}

fn reuse(out: &mut String, journal: &RunJournal) {
    let of = journal.trained().map(|epoch| {
        let rows = [epoch.cached_rows, epoch.fetched_rows].map(|rows| rows as f64);
        (f64::from(epoch.epoch), rows)
    });
    let chart = columns(&Columns {
        title: "Activations per epoch from the feature cache, and fetched activations",
        names: ["from the cache", "fetched"],
        columns: &of.collect::<Vec<_>>(),
        ticked: rows_of,
        shown: rows_of,
    });
    let cached = percent(journal.cached_fraction());
    let caption = format!("{cached} of the activations were cached.");
    add_figure(out, "Activations per epoch", chart, &caption);
}

fn rows_of(rows: f64) -> String {
    count(rows.max(0.0).round() as u64)
}

/// Adds the received bytes by purpose.
fn purposes(out: &mut String, received: &Received) {
    let uses = [
        ("training", received.training),
        ("validation", received.validation),
        ("validation before the first step", received.baseline),
        ("measuring", received.measuring),
        ("listing", received.listing),
        ("everything else", received.other),
    ];
    let most = uses.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    let total: u64 = uses.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes));
    if most == 0 {
        return;
    }
    out.push_str(r#"<figure><h3>Bytes by purpose</h3><ul class="uses">"#);
    for (name, amount) in uses.into_iter().filter(|(_, amount)| *amount > 0) {
        out.push_str(&format!(
            r#"<li><span>{}</span><span>{} ({})</span><span class="bar b0" style="width:{:.1}%"></span></li>"#,
            escaped(name),
            bytes(amount as f64),
            percent(amount as f64 / total as f64),
            amount as f64 / most as f64 * 100.0
        ));
    }
    out.push_str("</ul>");
    if received.interrupted > 0 {
        out.push_str(&format!(
            "<figcaption>{} of them belong to failed or cancelled requests, which were retried.</figcaption>",
            bytes(received.interrupted as f64)
        ));
    }
    out.push_str("</figure>");
}
