use super::table::{Cell, Row, add_omitted_note, table};
use crate::Run;
use crate::facts::Classes;
use crate::figure;
use crate::markup::{bytes, count, duration, escaped, percent, shortened};
use crate::run::{Journal, MomentKind};
use frostline_job::Task;
use frostline_job::folder::FinalState;

/// Maximum length of a split in characters.
const LETTERS: usize = 60;

pub(super) fn section(out: &mut String, run: &Run, classes: Option<&Classes>) {
    let journal = &run.journal;
    out.push_str(&format!(
        r#"<header><p class="kind">Frostline run</p><h1>{}</h1><p class="soft">{}</p></header>"#,
        escaped(&shortened(&run.name, 200)),
        escaped(&about(journal))
    ));
    if journal.done.is_none() {
        let state = escaped(&shortened(&state(run), 400));
        out.push_str(&format!(
            r#"<p class="warn">{state} This page shows its results so far.</p>"#
        ));
    }
    out.push_str(r#"<dl class="tiles">"#);
    judged(out, journal);
    tested(out, journal);
    if let Some(top_five) = classes
        .filter(|classes| classes.classes.len() > 5)
        .and_then(|of| of.top_five)
    {
        tile(out, "Top-5 accuracy", &percent(top_five), "final model");
    }
    time(out, journal);
    traffic(out, journal);
    tile(
        out,
        "Split",
        &shortened(&last_split(journal), LETTERS),
        &changes(journal),
    );
    out.push_str("</dl>");
    bad(out, journal);
}

/// Describes the state of an unfinished run.
fn state(run: &Run) -> String {
    let epochs = match run.journal.epochs.last() {
        None => "before completing an epoch".to_owned(),
        Some(last) => format!("after epoch {}", last.epoch),
    };
    match &run.ending {
        Some(FinalState::Failed { error }) => format!("This job failed {epochs}: {error}."),
        Some(FinalState::Interrupted) => {
            format!("This job was interrupted {epochs}. It can be resumed.")
        }
        _ => format!("This job is still running, or was killed {epochs}."),
    }
}

/// Adds a table of skipped images with errors.
fn bad(out: &mut String, journal: &Journal) {
    if journal.bad.is_empty() {
        return;
    }
    let rows: Vec<Row> = journal
        .bad
        .iter()
        .map(|bad| Row {
            cells: vec![
                Cell::Text(shortened(&bad.key, 200)),
                Cell::Raw(escaped(&shortened(&bad.message, 300))),
            ],
            best: false,
        })
        .collect();
    out.push_str(&format!(
        "<details><summary>Skipped bad images: {}</summary>",
        count(journal.bad_count)
    ));
    out.push_str(&table(&[("Image", false), ("Error", false)], &rows));
    add_omitted_note(out, rows.len(), journal.bad_count, "images");
    out.push_str("</details>");
}

fn about(journal: &Journal) -> String {
    let data = &journal.dataset;
    let [one, many] = match data.task {
        Task::Labels => ["label", "labels"],
        Task::Numbers => ["number", "numbers"],
        Task::Classes => ["class", "classes"],
    };
    if data.train == 0 {
        return "The data was not listed yet.".to_owned();
    }
    format!(
        "{} {}, {} training and {} validation images, {} epochs of {} steps",
        count(data.classes.len() as u64),
        if data.classes.len() == 1 { one } else { many },
        count(data.train),
        count(data.validation),
        count(journal.epochs.len() as u64),
        count(data.steps_per_epoch)
    )
}

/// Adds all metrics of the best epoch, starting with the primary metric.
fn judged(out: &mut String, journal: &Journal) {
    let Some(name) = figure::primary_metric(journal) else {
        return;
    };
    let before = journal.baseline.as_ref();
    let before = before.and_then(|baseline| figure::value(&baseline.figures(), name));
    let before = before.map_or_else(String::new, |value| {
        format!("; {} before training", figure::shown(name, value))
    });
    let Some((epoch, value)) = figure::best(journal, name) else {
        return;
    };
    let last = journal.epochs.last().map_or(0, |last| last.epoch);
    out.push_str(&format!(
        r#"<div class="first"><dt>Best {}</dt><dd>{}</dd><dd>epoch {} of {last}{}</dd></div>"#,
        escaped(&lowered(&figure::title(name))),
        escaped(&figure::shown(name, value)),
        epoch.epoch,
        together(&before)
    ));
    for (other, value) in epoch.figures.iter().filter(|(other, _)| *other != name) {
        tile(
            out,
            &figure::title(other),
            &figure::shown(other, *value),
            "at the best epoch",
        );
    }
    let loss = format!("of training, epoch {}", epoch.epoch);
    tile(out, "Loss", &figure::shown("loss", epoch.loss), &loss);
}

/// Adds the metrics of the written model on the test part, which was not used for any selection.
fn tested(out: &mut String, journal: &Journal) {
    let Some((quality, samples)) = journal.test else {
        return;
    };
    for (name, value) in quality.figures() {
        let title = format!("Test {}", lowered(&figure::title(name)));
        tile(
            out,
            &title,
            &figure::shown(name, value),
            &format!("of {} images", count(samples as u64)),
        );
    }
}

/// Converts the first letter to lowercase, unless the word is an abbreviation.
pub(super) fn lowered(title: &str) -> String {
    let mut letters = title.chars();
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if second.is_lowercase() => first
            .to_lowercase()
            .chain(std::iter::once(second))
            .chain(letters)
            .collect(),
        _ => title.to_owned(),
    }
}

fn time(out: &mut String, journal: &Journal) {
    let seconds = journal
        .done
        .as_ref()
        .map_or(journal.duration, |done| done.seconds.max(0.0));
    let mut times: Vec<f64> = journal.epochs.iter().map(|epoch| epoch.seconds).collect();
    times.sort_by(f64::total_cmp);
    let middle = times.get(times.len() / 2).copied();
    let words = middle.map_or_else(String::new, |median| {
        format!("{} per epoch (median)", duration(median))
    });
    tile(out, "Time", &duration(seconds), &words);
}

fn traffic(out: &mut String, journal: &Journal) {
    let epochs = journal.epochs.iter().map(|epoch| epoch.bytes_received).sum();
    let received = journal.done.as_ref().map_or(epochs, |done| done.bytes_received);
    let kept: u64 = journal.epochs.iter().map(|epoch| epoch.cached_rows).sum();
    let fetched: u64 = journal.epochs.iter().map(|epoch| epoch.fetched_rows).sum();
    let words = if kept > 0 {
        format!(
            "{} of all features from the cache",
            percent(kept as f64 / (kept + fetched) as f64)
        )
    } else {
        String::new()
    };
    tile(out, "Received", &bytes(received as f64), &words);
}

fn last_split(journal: &Journal) -> String {
    let done = journal
        .done
        .as_ref()
        .map(|done| &done.split)
        .filter(|split| !split.is_empty());
    let epoch = journal.epochs.last().map(|epoch| &epoch.split);
    let chosen = journal.chosen.as_ref().map(|chosen| &chosen.split);
    done.or(epoch)
        .or(chosen)
        .cloned()
        .unwrap_or_else(|| "–".to_owned())
}

fn changes(journal: &Journal) -> String {
    let encoding = journal
        .chosen
        .as_ref()
        .map_or("", |chosen| chosen.encoding.as_str());
    match journal.count(MomentKind::Replan) {
        0 if encoding.is_empty() => String::new(),
        0 => format!("in {encoding}, throughout the job"),
        1 => "changed once".to_owned(),
        count => format!("changed {count} times"),
    }
}

fn tile(out: &mut String, name: &str, value: &str, words: &str) {
    let long = if value.chars().count() > 9 {
        r#" class="long""#
    } else {
        ""
    };
    out.push_str(&format!(
        "<div><dt>{}</dt><dd{long}>{}</dd>",
        escaped(name),
        escaped(value)
    ));
    if !words.is_empty() {
        out.push_str(&format!("<dd>{}</dd>", together(words)));
    }
    out.push_str("</div>");
}

/// Escapes text and prevents line breaks before percent signs.
fn together(words: &str) -> String {
    escaped(words).replace(" %", "\u{a0}%")
}
