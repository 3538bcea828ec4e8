//! Several runs side by side.

use super::curves::{epoch_series, metric_series};
use super::headline::lowered;
use super::table::{Cell, PageTable, add_figure, add_omitted_note};
use super::template;
use crate::Run;
use crate::chart::{LineChart, Mark, Series, legend, lines};
use crate::figure;
use crate::markup::{bytes, duration, escaped, middle_cut, percent, shortened, significant};
use std::collections::BTreeSet;

/// Maximum number of runs in charts and in the comparison of settings, and maximum number of runs in the
/// table.
const DRAWN: usize = 12;
const LISTED: usize = 100;
/// Maximum number of settings in the table.
const SETTINGS: usize = 200;

pub(super) fn page(runs: &[Run]) -> String {
    let mut out = String::new();
    out.push_str(&format!(
        r#"<header><p class="kind">Frostline</p><h1>{} runs compared</h1></header>"#,
        runs.len()
    ));
    if runs.is_empty() {
        out.push_str(r#"<p class="warn">No runs to compare.</p>"#);
    } else {
        let names = names(runs);
        let metric = runs.iter().find_map(|run| figure::primary_metric(&run.journal));
        figures(&mut out, runs, &names, metric.unwrap_or("accuracy"));
        let drawn = Drawn {
            runs: runs.get(..DRAWN).unwrap_or(runs),
            names: names.get(..DRAWN).unwrap_or(&names),
        };
        drawn.curves(&mut out, runs.len());
        drawn.settings(&mut out);
    }
    template::page(&format!("{} runs", runs.len()), &out)
}

/// Returns short and distinct names of the runs.
fn names(runs: &[Run]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let named = runs.iter().enumerate().map(|(place, run)| {
        let name = middle_cut(&run.name, 40);
        if seen.insert(name.clone()) {
            name
        } else {
            format!("{name} ({})", place + 1)
        }
    });
    named.collect()
}

/// Adds a table with the best value of a metric.
fn figures(out: &mut String, runs: &[Run], names: &[String], metric: &str) {
    let title = format!("Best {}", lowered(figure::title(metric)));
    let mut table = PageTable::new([
        "Run", &title, "Epoch", "Last", "Loss", "Epochs", "Time", "Received", "Cached", "Split",
    ]);
    let value = |run: &Run| figure::best(&run.journal, metric).map(|(_, value)| value);
    let score = |value: &f64| figure::score(metric, *value);
    let values = runs.iter().filter_map(value);
    let best = values.max_by(|left, right| score(left).total_cmp(&score(right)));
    for (run, name) in runs.iter().zip(names).take(LISTED) {
        let is_best = best.is_some() && value(run) == best;
        table.rated_row(is_best, cells(run, name, metric));
    }
    out.push_str("<section><h2>Results</h2>");
    table.write(out, runs.len(), "runs");
    out.push_str("</section>");
}

fn cells(run: &Run, name: &str, metric: &str) -> Vec<Cell> {
    let journal = &run.journal;
    let best = figure::best(journal, metric);
    let epoch = best.map(|(epoch, _)| epoch);
    let value = best.map_or(f64::NAN, |(_, value)| value);
    let last = journal.trained().last();
    let at_last = last.and_then(|epoch| figure::value(&epoch.validation, metric));
    let done = match journal.done {
        Some(_) => "",
        None => r#"<span class="tag">not done</span>"#,
    };
    let numbers = [
        figure::shown(metric, value),
        epoch.map_or_else(|| "–".to_owned(), |epoch| epoch.epoch.to_string()),
        figure::shown(metric, at_last.unwrap_or(f64::NAN)),
        significant(epoch.map_or(f64::NAN, |epoch| epoch.loss)),
        journal.epochs.len().to_string(),
        duration(journal.seconds()),
        bytes(journal.received() as f64),
        percent(journal.cached_fraction()),
    ];
    let split = last.map_or_else(|| "–".to_owned(), |epoch| shortened(&epoch.split.to_string(), 60));
    let name = Cell::Raw(format!("{}{done}", escaped(name)));
    let numbers = numbers.map(Cell::Number);
    [name]
        .into_iter()
        .chain(numbers)
        .chain([Cell::Text(split)])
        .collect()
}

/// Runs with the same colors in all charts.
struct Drawn<'a> {
    runs: &'a [Run],
    names: &'a [String],
}

impl Drawn<'_> {
    /// Adds a chart with a heading. `across` is the caption of the horizontal axis, and true for integers.
    fn draw(
        &self,
        out: &mut String,
        heading: &str,
        across: (&str, bool),
        is_fraction: bool,
        points: impl Fn(&Run) -> Vec<(f64, f64)>,
    ) {
        let runs = self.runs.iter().zip(self.names).enumerate();
        let series: Vec<Series> = runs
            .map(|(place, (run, name))| Series::new(name, points(run), place))
            .collect();
        let chart = lines(&LineChart {
            title: heading,
            across: across.0,
            counted: across.1,
            series: &series,
            has_legend: false,
            is_fraction,
        });
        add_figure(out, heading, chart, "");
    }

    fn curves(&self, out: &mut String, all: usize) {
        let key = legend(Mark::Line, self.names.iter().enumerate());
        out.push_str(&format!(r#"<section><h2>Curves</h2>{key}<div class="grid2">"#));
        let metric = self
            .runs
            .iter()
            .find_map(|run| figure::primary_metric(&run.journal));
        if let Some(name) = metric {
            let title = figure::title(name);
            let share = figure::is_fraction(name);
            let heading = format!("{title} over epochs");
            self.draw(out, &heading, ("epoch", true), share, |run| {
                metric_series(&run.journal, name)
            });
            let heading = format!("{title} over time");
            let minutes = ("minutes since the job started", false);
            self.draw(out, &heading, minutes, share, |run| {
                let epochs = run.journal.epochs.iter();
                let points = epochs.filter_map(|epoch| {
                    let value = figure::value(&epoch.trained.validation, name)?;
                    Some((epoch.at / 60.0, value))
                });
                points.filter(|(_, value)| value.is_finite()).collect()
            });
        }
        self.draw(out, "Training loss over epochs", ("epoch", true), false, |run| {
            epoch_series(&run.journal, |epoch| Some(epoch.loss))
        });
        out.push_str("</div>");
        add_omitted_note(out, self.runs.len(), all, "runs");
        out.push_str("</section>");
    }

    fn settings(&self, out: &mut String) {
        let rows = self.runs.iter().flat_map(|run| &run.settings.rows);
        let names: BTreeSet<&str> = rows.map(|(name, _)| name.as_str()).collect();
        let values = names.into_iter().map(|name| {
            let values: Vec<Option<&str>> = self.runs.iter().map(|run| run.settings.get(name)).collect();
            (name, values)
        });
        let differing: Vec<(&str, Vec<Option<&str>>)> = values
            .filter(|(_, values)| values.iter().any(|value| Some(value) != values.first()))
            .collect();
        out.push_str("<section><h2>Settings that differ</h2>");
        if differing.is_empty() {
            out.push_str("<p>None.</p></section>");
            return;
        }
        let mut table = PageTable::new(
            ["Setting"]
                .into_iter()
                .chain(self.names.iter().map(String::as_str)),
        );
        for (name, values) in differing.iter().take(SETTINGS) {
            let values = values.iter().map(|value| value.unwrap_or("–"));
            let cells = [*name].into_iter().chain(values);
            table.row(cells.map(|text| Cell::Text(text.to_owned())));
        }
        table.write(out, differing.len(), "settings");
        out.push_str("</section>");
    }
}
