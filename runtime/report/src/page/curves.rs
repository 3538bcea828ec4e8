use super::table::{Cell, Row, add_omitted_note, table};
use crate::Run;
use crate::chart::{Lines, Mark, Series, legend, lines};
use crate::facts::{epoch_series, step_series};
use crate::figure;
use crate::markup::{bytes, duration, escaped, percent, plain, significant};
use crate::run::{Epoch, Journal};

/// Maximum number of charts for metrics, in addition to the loss.
const CHARTS: usize = 4;
/// Maximum number of epochs in the table.
const ROWS: usize = 200;

pub(super) fn section(out: &mut String, run: &Run) {
    let journal = &run.journal;
    if journal.steps.sampled().is_empty() && journal.epochs.is_empty() {
        return;
    }
    out.push_str(r#"<section><h2>Curves</h2><div class="grid2">"#);
    loss(out, journal);
    for names in groups(journal).iter().take(CHARTS) {
        validation(out, journal, names);
    }
    out.push_str("</div>");
    epochs(out, journal);
    out.push_str("</section>");
}

/// Adds a chart with a heading, a legend and a caption, if there is a chart.
pub(super) fn add_figure(out: &mut String, heading: &str, chart: Option<String>, key: &str, caption: &str) {
    let Some(chart) = chart else {
        return;
    };
    out.push_str(&format!("<figure><h3>{}</h3>{chart}{key}", escaped(heading)));
    if !caption.is_empty() {
        out.push_str(&format!("<figcaption>{}</figcaption>", escaped(caption)));
    }
    out.push_str("</figure>");
}

fn loss(out: &mut String, journal: &Journal) {
    let series = [
        Series {
            name: "mean per epoch".to_owned(),
            points: epoch_series(journal, |epoch| Some(epoch.loss)),
            place: 0,
            in_background: false,
        },
        Series {
            name: "per step".to_owned(),
            points: step_series(journal),
            place: 5,
            in_background: true,
        },
    ];
    let chart = lines(&Lines {
        title: "Training loss over epochs, with the loss of steps in the background",
        across: "epoch",
        counted: true,
        series: &series,
        limits: (f64::NEG_INFINITY, f64::INFINITY),
        shown: plain,
    });
    let key = legend(Mark::Line, &[(0, "mean per epoch"), (5, "per step")]);
    add_figure(out, "Training loss", chart, &key, "");
}

/// Groups metrics by axis: fractions, errors in the unit of the target, and each other metric separately.
fn groups(journal: &Journal) -> Vec<Vec<&'static str>> {
    let figures = journal.epochs.first().map(|epoch| epoch.figures.as_slice());
    let names = figures.unwrap_or_default().iter().map(|(name, _)| *name);
    let (shares, others): (Vec<_>, Vec<_>) = names.partition(|name| figure::is_fraction(name));
    let (errors, others): (Vec<_>, Vec<_>) = others
        .into_iter()
        .partition(|name| ["mae", "rmse"].contains(name));
    let together = [shares, errors].into_iter().filter(|names| !names.is_empty());
    together
        .chain(others.into_iter().map(|name| vec![name]))
        .collect()
}

fn validation(out: &mut String, journal: &Journal, names: &[&str]) {
    let series: Vec<Series> = names
        .iter()
        .enumerate()
        .map(|(place, name)| Series {
            name: figure::title(name),
            points: metric_series(journal, name),
            place,
            in_background: false,
        })
        .collect();
    let share = names.first().is_some_and(|name| figure::is_fraction(name));
    let heading = match names {
        [name] => format!("{} on validation images", figure::title(name)),
        _ => "On validation images".to_owned(),
    };
    let chart = lines(&Lines {
        title: &format!("{heading}, over epochs"),
        across: "epoch (0: before training)",
        counted: true,
        series: &series,
        limits: if share {
            (0.0, 1.0)
        } else {
            (f64::NEG_INFINITY, f64::INFINITY)
        },
        shown: if share { hundredths } else { plain },
    });
    let entries: Vec<(usize, &str)> = series
        .iter()
        .map(|series| (series.place, series.name.as_str()))
        .collect();
    let key = if entries.len() > 1 {
        legend(Mark::Line, &entries)
    } else {
        String::new()
    };
    add_figure(out, &heading, chart, &key, &best(journal, names));
}

fn best(journal: &Journal, names: &[&str]) -> String {
    let found = names.iter().filter_map(|name| {
        let (epoch, value) = figure::best(journal, name)?;
        let title = figure::title(name);
        Some(format!(
            "{title}: best {} at epoch {}",
            figure::shown(name, value),
            epoch.epoch
        ))
    });
    found.collect::<Vec<_>>().join("; ")
}

/// Returns a metric by epoch, starting with the value before training.
pub(super) fn metric_series(journal: &Journal, name: &str) -> Vec<(f64, f64)> {
    let before = journal.baseline.as_ref();
    let before = before.and_then(|baseline| figure::value(&baseline.figures(), name));
    let before = before.filter(|value| value.is_finite()).map(|value| (0.0, value));
    let epochs = epoch_series(journal, |epoch| figure::value(&epoch.figures, name));
    before.into_iter().chain(epochs).collect()
}

pub(super) fn hundredths(share: f64) -> String {
    format!("{} %", plain((share * 1e6).round() / 1e4))
}

fn epochs(out: &mut String, journal: &Journal) {
    let all = &journal.epochs;
    let Some(first) = all.first() else {
        return;
    };
    let names: Vec<&str> = first.figures.iter().map(|(name, _)| *name).collect();
    let stored = all.iter().any(|epoch| epoch.cached_rows > 0);
    let titles: Vec<String> = names.iter().map(|name| figure::title(name)).collect();
    let mut header = vec![("Epoch", true), ("Loss", true)];
    header.extend(titles.iter().map(|title| (title.as_str(), true)));
    header.extend([("Time", true), ("Waited", true), ("Received", true)]);
    header.extend(stored.then_some(("Cached", true)));
    header.push(("Split", false));
    let best = figure::primary_metric(journal).and_then(|name| figure::best(journal, name));
    let best = best.map(|(epoch, _)| epoch.epoch);
    // The best epoch and the last epochs.
    let late = all.len().saturating_sub(ROWS);
    let shown = all
        .iter()
        .enumerate()
        .filter(|(place, epoch)| *place >= late || best == Some(epoch.epoch));
    let rows: Vec<Row> = shown
        .map(|(_, epoch)| Row {
            cells: cells(epoch, &names, stored),
            best: best == Some(epoch.epoch),
        })
        .collect();
    out.push_str("<details><summary>All metrics by epoch</summary>");
    out.push_str(&table(&header, &rows));
    add_omitted_note(out, rows.len(), all.len() as u64, "epochs");
    out.push_str("</details>");
}

fn cells(epoch: &Epoch, names: &[&str], stored: bool) -> Vec<Cell> {
    let mut cells = vec![
        Cell::Number(epoch.epoch.to_string()),
        Cell::Number(significant(epoch.loss)),
    ];
    cells.extend(names.iter().map(|name| {
        let value = figure::value(&epoch.figures, name).unwrap_or(f64::NAN);
        Cell::Number(figure::shown(name, value))
    }));
    cells.push(Cell::Number(duration(epoch.seconds)));
    cells.push(Cell::Number(percent(epoch.waited_seconds / epoch.seconds)));
    cells.push(Cell::Number(bytes(epoch.bytes_received as f64)));
    if stored {
        let kept = epoch.cached_rows;
        let fetched = epoch.fetched_rows;
        cells.push(Cell::Number(percent(
            kept as f64 / (kept + fetched).max(1) as f64,
        )));
    }
    cells.push(Cell::Text(crate::markup::shortened(&epoch.split, 60)));
    cells
}
