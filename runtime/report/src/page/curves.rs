use super::table::{Cell, PageTable, add_figure};
use crate::chart::{LineChart, Series, lines};
use crate::figure;
use crate::markup::{bytes, duration, percent, shortened, significant};
use crate::run::RunJournal;
use frostline_job::TrainedEpoch;

/// Maximum number of epochs in the table.
const ROWS: usize = 200;

pub(super) fn section(out: &mut String, journal: &RunJournal) {
    if journal.steps.sampled().is_empty() && journal.epochs.is_empty() {
        return;
    }
    out.push_str(r#"<section><h2>Curves</h2><div class="grid2">"#);
    loss(out, journal);
    // Fractions have a common axis, and errors in the unit of the target.
    let unit = |name: &str| (figure::is_fraction(name), figure::is_error(name));
    for names in metrics(journal).chunk_by(|left, right| unit(left) == unit(right)) {
        validation(out, journal, names);
    }
    out.push_str("</div>");
    epochs(out, journal);
    out.push_str("</section>");
}

fn loss(out: &mut String, journal: &RunJournal) {
    let mean = epoch_series(journal, |epoch| Some(epoch.loss));
    let steps = Series {
        in_background: true,
        ..Series::new("per step", step_series(journal), 5)
    };
    let chart = lines(&LineChart {
        title: "Training loss over epochs, with the loss of steps in the background",
        across: "epoch",
        counted: true,
        series: &[Series::new("mean per epoch", mean, 0), steps],
        has_legend: true,
        is_fraction: false,
    });
    add_figure(out, "Training loss", chart, "");
}

/// Returns the names of the validation metrics.
fn metrics(journal: &RunJournal) -> Vec<&'static str> {
    let figures = journal.trained().next().map(|epoch| epoch.validation.figures());
    figures.into_iter().flatten().map(|(name, _)| name).collect()
}

fn validation(out: &mut String, journal: &RunJournal, names: &[&str]) {
    let series: Vec<Series> = names
        .iter()
        .enumerate()
        .map(|(place, name)| Series::new(figure::title(name), metric_series(journal, name), place))
        .collect();
    let heading = match names {
        [name] => format!("{} on validation images", figure::title(name)),
        _ => "On validation images".to_owned(),
    };
    let chart = lines(&LineChart {
        title: &format!("{heading}, over epochs"),
        across: "epoch (0: before training)",
        counted: true,
        series: &series,
        has_legend: true,
        is_fraction: names.first().is_some_and(|name| figure::is_fraction(name)),
    });
    let best = names.iter().filter_map(|name| {
        let (epoch, value) = figure::best(journal, name)?;
        let title = figure::title(name);
        let value = figure::shown(name, value);
        Some(format!("{title}: best {value} at epoch {}", epoch.epoch))
    });
    add_figure(out, &heading, chart, &best.collect::<Vec<_>>().join("; "));
}

/// Returns `(epoch, value)` for each epoch with a finite value.
pub(super) fn epoch_series(
    journal: &RunJournal,
    figure: impl Fn(&TrainedEpoch) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let points = journal.trained().filter_map(|epoch| {
        let value = figure(epoch).filter(|value| value.is_finite())?;
        Some((f64::from(epoch.epoch), value))
    });
    points.collect()
}

/// Returns a metric by epoch, starting with the value before training.
pub(super) fn metric_series(journal: &RunJournal, name: &str) -> Vec<(f64, f64)> {
    let before = journal
        .baseline
        .and_then(|baseline| figure::value(&baseline, name));
    let before = before.filter(|value| value.is_finite()).map(|value| (0.0, value));
    let epochs = epoch_series(journal, |epoch| figure::value(&epoch.validation, name));
    before.into_iter().chain(epochs).collect()
}

/// Returns `(epochs trained, loss)` for each sampled step.
fn step_series(journal: &RunJournal) -> Vec<(f64, f64)> {
    let usual = journal.data.steps_per_epoch as u64;
    let steps = journal.steps.sampled();
    let mut points = Vec::with_capacity(steps.len());
    for steps in steps.chunk_by(|left, right| left.epoch == right.epoch) {
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
            continue;
        };
        let before = first.step.saturating_sub(1);
        let mut length = last.step.saturating_sub(before);
        if journal.trained().rev().all(|ended| ended.epoch != first.epoch) {
            length = length.max(usual);
        }
        points.extend(steps.iter().map(|step| {
            let share = step.step.saturating_sub(before) as f64 / length.max(1) as f64;
            (f64::from(first.epoch) - 1.0 + share, f64::from(step.loss))
        }));
    }
    points
}

fn epochs(out: &mut String, journal: &RunJournal) {
    if journal.epochs.is_empty() {
        return;
    }
    let names = metrics(journal);
    let stored = journal.trained().any(|epoch| epoch.cached_rows > 0);
    let mut header = vec!["Epoch", "Loss"];
    header.extend(names.iter().map(|name| figure::title(name)));
    header.extend(["Time", "Waited", "Received"]);
    header.extend(stored.then_some("Cached"));
    header.push("Split");
    let mut table = PageTable::new(header);
    let best = figure::primary_metric(journal).and_then(|name| figure::best(journal, name));
    let best = best.map(|(epoch, _)| epoch.epoch);
    // The best epoch and the last epochs.
    let late = journal.epochs.len().saturating_sub(ROWS);
    for (place, epoch) in journal.trained().enumerate() {
        let is_best = best == Some(epoch.epoch);
        if place >= late || is_best {
            table.rated_row(is_best, cells(epoch, &names, stored));
        }
    }
    out.push_str("<details><summary>All metrics by epoch</summary>");
    table.write(out, journal.epochs.len(), "epochs");
    out.push_str("</details>");
}

fn cells(epoch: &TrainedEpoch, names: &[&str], stored: bool) -> Vec<Cell> {
    let mut numbers = vec![epoch.epoch.to_string(), significant(epoch.loss)];
    numbers.extend(names.iter().map(|name| {
        let value = figure::value(&epoch.validation, name);
        figure::shown(name, value.unwrap_or(f64::NAN))
    }));
    numbers.push(duration(epoch.seconds));
    numbers.push(percent(epoch.waited_seconds / epoch.seconds));
    numbers.push(bytes(epoch.bytes_received as f64));
    if stored {
        let rows = (epoch.cached_rows + epoch.fetched_rows).max(1);
        numbers.push(percent(epoch.cached_rows as f64 / rows as f64));
    }
    let split = Cell::Text(shortened(&epoch.split.to_string(), 60));
    numbers.into_iter().map(Cell::Number).chain([split]).collect()
}
