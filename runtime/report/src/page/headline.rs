use super::table::{Cell, PageTable};
use crate::Run;
use crate::figure;
use crate::markup::{bytes, count, duration, escaped, percent, shortened};
use crate::run::{MomentKind, RunJournal};
use frostline_job::Task;
use frostline_job::folder::FinalState;

/// Maximum length of a split in characters.
const LETTERS: usize = 60;

pub(super) fn section(out: &mut String, run: &Run) {
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
    if let Some(predictions) = &run.predictions
        && let Some(share) = predictions.top_five
        && predictions.scores.len() > 5
        && journal.data.task == Task::Classes
    {
        tile(out, "Top-5 accuracy", &percent(share), "final model");
    }
    time(out, journal);
    traffic(out, journal);
    split(out, journal);
    out.push_str("</dl>");
    bad(out, journal);
}

/// Describes the state of an unfinished run.
fn state(run: &Run) -> String {
    let epochs = match run.journal.trained().last() {
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
fn bad(out: &mut String, journal: &RunJournal) {
    if journal.bad.is_empty() {
        return;
    }
    let mut table = PageTable::new(["Image", "Error"]);
    for (key, message) in &journal.bad {
        let message = escaped(&shortened(message, 300));
        table.row([Cell::Text(shortened(key, 200)), Cell::Raw(message)]);
    }
    out.push_str(&format!(
        "<details><summary>Skipped bad images: {}</summary>",
        count(journal.bad_count)
    ));
    table.write(out, journal.bad_count as usize, "images");
    out.push_str("</details>");
}

fn about(journal: &RunJournal) -> String {
    let data = &journal.data;
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
        count(data.classes.len()),
        if data.classes.len() == 1 { one } else { many },
        count(data.train),
        count(data.validation),
        count(journal.epochs.len()),
        count(data.steps_per_epoch)
    )
}

/// Adds all metrics of the best epoch, starting with the primary metric.
fn judged(out: &mut String, journal: &RunJournal) {
    let Some(name) = figure::primary_metric(journal) else {
        return;
    };
    let before = journal
        .baseline
        .and_then(|baseline| figure::value(&baseline, name));
    let before = before.map_or_else(String::new, |value| {
        format!("; {} before training", figure::shown(name, value))
    });
    let Some((epoch, value)) = figure::best(journal, name) else {
        return;
    };
    let last = journal.trained().last().map_or(0, |last| last.epoch);
    out.push_str(&format!(
        r#"<div class="first"><dt>Best {}</dt><dd>{}</dd><dd>epoch {} of {last}{}</dd></div>"#,
        escaped(&lowered(figure::title(name))),
        escaped(&figure::shown(name, value)),
        epoch.epoch,
        together(&before)
    ));
    let figures = epoch.validation.figures().into_iter();
    for (other, value) in figures.filter(|(other, _)| *other != name) {
        let shown = figure::shown(other, value);
        tile(out, figure::title(other), &shown, "at the best epoch");
    }
    let loss = format!("of training, epoch {}", epoch.epoch);
    tile(out, "Loss", &figure::shown("loss", epoch.loss), &loss);
}

/// Adds the metrics of the written model on the test part, which was not used for any selection.
fn tested(out: &mut String, journal: &RunJournal) {
    let Some((quality, samples)) = journal.test else {
        return;
    };
    let words = format!("of {} images", count(samples));
    for (name, value) in quality.figures() {
        let title = format!("Test {}", lowered(figure::title(name)));
        tile(out, &title, &figure::shown(name, value), &words);
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

fn time(out: &mut String, journal: &RunJournal) {
    let mut times: Vec<f64> = journal.trained().map(|epoch| epoch.seconds).collect();
    times.sort_by(f64::total_cmp);
    let middle = times.get(times.len() / 2).copied();
    let words = middle.map_or_else(String::new, |median| {
        format!("{} per epoch (median)", duration(median))
    });
    tile(out, "Time", &duration(journal.seconds().max(0.0)), &words);
}

fn traffic(out: &mut String, journal: &RunJournal) {
    let cached = journal.cached_fraction();
    let words = if cached > 0.0 {
        format!("{} of all features from the cache", percent(cached))
    } else {
        String::new()
    };
    tile(out, "Received", &bytes(journal.received() as f64), &words);
}

/// Adds the last split and the number of changes.
fn split(out: &mut String, journal: &RunJournal) {
    let done = journal.done.as_ref().map(|done| done.split.to_string());
    let done = done.filter(|split| !split.is_empty());
    let last = done.or_else(|| Some(journal.trained().last()?.split.to_string()));
    let (chosen, encoding) = match &journal.chosen {
        Some((split, encoding)) => (split.as_str(), encoding.as_str()),
        None => ("–", ""),
    };
    let words = match journal.count(MomentKind::Replan) {
        0 if encoding.is_empty() => String::new(),
        0 => format!("in {encoding}, throughout the job"),
        1 => "changed once".to_owned(),
        count => format!("changed {count} times"),
    };
    let split = last.as_deref().unwrap_or(chosen);
    tile(out, "Split", &shortened(split, LETTERS), &words);
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
