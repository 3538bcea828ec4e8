//! Several runs side by side.

use super::curves::{add_figure, hundredths, metric_series};
use super::headline::lowered;
use super::shell;
use super::table::{Cell, Row, add_omitted_note, table};
use crate::Run;
use crate::chart::{Lines, Mark, Series, legend, lines};
use crate::facts::epoch_series;
use crate::figure;
use crate::markup::{bytes, duration, escaped, middle_cut, percent, plain, shortened, significant};
use std::collections::BTreeSet;

/// Maximum number of runs in charts and in the comparison of settings, and maximum number of runs in the
/// table.
const DRAWN: usize = 12;
const LISTED: usize = 100;
/// Maximum number of settings in the table.
const SETTINGS: usize = 200;

pub(super) fn page(runs: &[Run]) -> String {
    let mut out = shell::open_page(&format!("{} runs", runs.len()));
    out.push_str(&format!(
        r#"<header><p class="kind">Frostline</p><h1>{} runs compared</h1></header>"#,
        runs.len()
    ));
    if runs.is_empty() {
        out.push_str(r#"<p class="warn">No runs to compare.</p>"#);
    } else {
        figures(&mut out, runs);
        let drawn = runs.get(..DRAWN.min(runs.len())).unwrap_or_default();
        curves(&mut out, drawn, runs.len());
        settings(&mut out, drawn);
    }
    shell::end(&mut out);
    out
}

/// Returns short and distinct names of the runs.
fn names(runs: &[Run]) -> Vec<String> {
    let short = |run: &Run| middle_cut(&run.name, 40);
    let mut seen = BTreeSet::new();
    let named = runs.iter().enumerate().map(|(place, run)| {
        let name = short(run);
        if seen.insert(name.clone()) {
            name
        } else {
            format!("{name} ({})", place + 1)
        }
    });
    named.collect()
}

/// Returns the metric for the comparison, which is the primary metric of the first validated run.
fn judged(runs: &[Run]) -> Option<&str> {
    runs.iter().find_map(|run| figure::primary_metric(&run.journal))
}

fn figures(out: &mut String, runs: &[Run]) {
    let name = judged(runs).unwrap_or("accuracy");
    let title = format!("Best {}", lowered(&figure::title(name)));
    let header = [
        ("Run", false),
        (title.as_str(), true),
        ("Epoch", true),
        ("Last", true),
        ("Loss", true),
        ("Epochs", true),
        ("Time", true),
        ("Received", true),
        ("Cached", true),
        ("Split", false),
    ];
    let best = runs
        .iter()
        .filter_map(|run| figure::best(&run.journal, name).map(|(_, value)| value));
    let best = best.reduce(|left, right| {
        if figure::lower_is_better(name) {
            left.min(right)
        } else {
            left.max(right)
        }
    });
    let rows: Vec<Row> = runs
        .iter()
        .zip(names(runs))
        .take(LISTED)
        .map(|(run, short)| row(run, short, name, best))
        .collect();
    out.push_str("<section><h2>Results</h2>");
    out.push_str(&table(&header, &rows));
    add_omitted_note(out, rows.len(), runs.len() as u64, "runs");
    out.push_str("</section>");
}

fn row(run: &Run, short: String, name: &str, best: Option<f64>) -> Row {
    let journal = &run.journal;
    let (epoch, value) =
        figure::best(journal, name).map_or((None, f64::NAN), |(epoch, value)| (Some(epoch), value));
    let last = journal.epochs.last();
    let at_last = last
        .and_then(|epoch| figure::value(&epoch.figures, name))
        .unwrap_or(f64::NAN);
    let received = journal.done.as_ref().map_or_else(
        || journal.epochs.iter().map(|epoch| epoch.bytes_received).sum(),
        |done| done.bytes_received,
    );
    let kept: u64 = journal.epochs.iter().map(|epoch| epoch.cached_rows).sum();
    let fetched: u64 = journal.epochs.iter().map(|epoch| epoch.fetched_rows).sum();
    let done = if journal.done.is_some() {
        ""
    } else {
        r#"<span class="tag">not done</span>"#
    };
    Row {
        cells: vec![
            Cell::Raw(format!("{}{done}", escaped(&short))),
            Cell::Number(figure::shown(name, value)),
            Cell::Number(epoch.map_or_else(|| "–".to_owned(), |epoch| epoch.epoch.to_string())),
            Cell::Number(figure::shown(name, at_last)),
            Cell::Number(significant(epoch.map_or(f64::NAN, |epoch| epoch.loss))),
            Cell::Number(journal.epochs.len().to_string()),
            Cell::Number(duration(
                journal
                    .done
                    .as_ref()
                    .map_or(journal.duration, |done| done.seconds),
            )),
            Cell::Number(bytes(received as f64)),
            Cell::Number(percent(kept as f64 / (kept + fetched) as f64)),
            Cell::Text(last.map_or_else(|| "–".to_owned(), |epoch| shortened(&epoch.split, 60))),
        ],
        best: best.is_some_and(|best| best == value),
    }
}

/// Runs with the same colors in all charts.
struct Curves<'a> {
    runs: &'a [Run],
    names: &'a [String],
}

impl Curves<'_> {
    fn series(&self, points: impl Fn(&Run) -> Vec<(f64, f64)>) -> Vec<Series> {
        let of = self.runs.iter().zip(self.names).enumerate();
        of.map(|(place, (run, name))| Series {
            name: name.clone(),
            points: points(run),
            place,
            in_background: false,
        })
        .collect()
    }
}

/// Adds a chart with a heading. `across` is the caption of the horizontal axis, and true for integers.
fn draw(out: &mut String, heading: &str, across: (&str, bool), series: &[Series], share: bool) {
    let chart = lines(&Lines {
        title: heading,
        across: across.0,
        counted: across.1,
        series,
        limits: if share {
            (0.0, 1.0)
        } else {
            (f64::NEG_INFINITY, f64::INFINITY)
        },
        shown: if share { hundredths } else { plain },
    });
    add_figure(out, heading, chart, "", "");
}

fn curves(out: &mut String, runs: &[Run], all: usize) {
    let names = &names(runs);
    let entries: Vec<(usize, &str)> = names.iter().map(String::as_str).enumerate().collect();
    let key = legend(Mark::Line, &entries);
    out.push_str(&format!(r#"<section><h2>Curves</h2>{key}<div class="grid2">"#));
    let curves = Curves { runs, names };
    if let Some(name) = judged(runs) {
        let title = figure::title(name);
        let share = figure::is_fraction(name);
        let by_epoch = curves.series(|run| metric_series(&run.journal, name));
        draw(
            out,
            &format!("{title} over epochs"),
            ("epoch", true),
            &by_epoch,
            share,
        );
        let by_time = curves.series(|run| {
            let epochs = run.journal.epochs.iter();
            let points =
                epochs.filter_map(|epoch| Some((epoch.at / 60.0, figure::value(&epoch.figures, name)?)));
            points.filter(|(_, value)| value.is_finite()).collect()
        });
        let minutes = ("minutes since the job started", false);
        draw(out, &format!("{title} over time"), minutes, &by_time, share);
    }
    let losses = curves.series(|run| epoch_series(&run.journal, |epoch| Some(epoch.loss)));
    draw(out, "Training loss over epochs", ("epoch", true), &losses, false);
    out.push_str("</div>");
    add_omitted_note(out, runs.len(), all as u64, "runs");
    out.push_str("</section>");
}

fn settings(out: &mut String, runs: &[Run]) {
    let all: BTreeSet<&str> = runs
        .iter()
        .flat_map(|run| run.settings.rows.iter().map(|(name, _)| name.as_str()))
        .collect();
    let differing: Vec<&str> = all
        .into_iter()
        .filter(|name| {
            let mut values = runs.iter().map(|run| run.settings.get(name));
            let first = values.next().flatten();
            values.any(|value| value != first)
        })
        .collect();
    out.push_str("<section><h2>Settings that differ</h2>");
    if differing.is_empty() {
        out.push_str("<p>None.</p></section>");
        return;
    }
    let short = names(runs);
    let mut header = vec![("Setting", false)];
    header.extend(short.iter().map(|name| (name.as_str(), false)));
    let rows: Vec<Row> = differing
        .iter()
        .take(SETTINGS)
        .map(|name| {
            let values = runs
                .iter()
                .map(|run| Cell::Text(run.settings.get(name).unwrap_or("–").to_owned()));
            Row {
                cells: std::iter::once(Cell::Text((*name).to_owned()))
                    .chain(values)
                    .collect(),
                best: false,
            }
        })
        .collect();
    out.push_str(&table(&header, &rows));
    add_omitted_note(out, rows.len(), differing.len() as u64, "settings");
    out.push_str("</section>");
}
