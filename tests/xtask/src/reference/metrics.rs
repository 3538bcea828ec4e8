//! Generates the reference of metrics from OpenMetrics text that contains each metric.

use super::row;
use anyhow::{Context, Result};
use std::collections::BTreeSet;

#[derive(Debug, Default, PartialEq, Eq)]
struct Metric {
    name: String,
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

#[derive(PartialEq, Eq)]
enum Section {
    Host,
    Tenants,
    Process,
}

impl Metric {
    fn section(&self) -> Section {
        match self.name.strip_prefix("frostline_") {
            None => Section::Process,
            Some(name) if name.starts_with("tenant_") || name.starts_with("root_") => Section::Tenants,
            Some(_) => Section::Host,
        }
    }
}

pub(super) fn table(text: &str) -> Result<String> {
    let metrics = read(text)?;
    let mut page = "Metrics of a host, served at `/metrics`. A family with labels has no series before its first event. A histogram has the series \
        `_bucket`, `_sum` and `_count`. [Metrics](../../server/docs/metrics.md) explains where they are served and what to watch.\n"
        .to_owned();
    for (section, title) in [
        (Section::Host, "Host"),
        (
            Section::Tenants,
            "Tenants and data roots, at `metrics_listen` alone",
        ),
        (Section::Process, "Process"),
    ] {
        page.push_str(&format!(
            "\n## {title}\n\n| metric | type | labels | description |\n|---|---|---|---|\n"
        ));
        for metric in metrics.iter().filter(|metric| metric.section() == section) {
            let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            let name = format!("`{}`", metric.name);
            page.push_str(&row(&[&name, &metric.kind, &labels.join(", "), &metric.help]));
        }
    }
    Ok(page)
}

fn read(text: &str) -> Result<Vec<Metric>> {
    let mut metrics: Vec<Metric> = Vec::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').context("missing help text of a metric")?;
            metrics.push(Metric {
                name: name.to_owned(),
                help: help.trim_end_matches('.').to_owned(),
                ..Metric::default()
            });
        } else if let Some(metric) = metrics.last_mut() {
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                kind.rsplit(' ')
                    .next()
                    .unwrap_or_default()
                    .clone_into(&mut metric.kind);
                metric.name.push_str(match metric.kind.as_str() {
                    "counter" => "_total",
                    "info" => "_info",
                    _ => "",
                });
            } else if !line.starts_with('#') {
                metric.labels.extend(labels(line));
            }
        }
    }
    Ok(metrics)
}

/// Returns the label names of a series, except `le` of histogram buckets.
fn labels(series: &str) -> impl Iterator<Item = String> {
    let (_, rest) = series.split_once('{').unwrap_or_default();
    let (labels, _) = rest.split_once('}').unwrap_or_default();
    let names = labels.split(',').filter_map(|label| label.split_once('='));
    names.map(|(name, _)| name.to_owned()).filter(|name| name != "le")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_series_names_and_no_bucket_labels() {
        let text = "# HELP a Things.\n# TYPE a counter\na_total{b=\"x\",c=\"y z\"} 1\n\
            # HELP d_seconds Waits.\n# TYPE d_seconds histogram\n# UNIT d_seconds seconds\nd_seconds_bucket{le=\"1.0\"} 1\n# EOF\n";
        let metric = |name: &str, kind: &str, help: &str, labels: &[&str]| Metric {
            name: name.to_owned(),
            kind: kind.to_owned(),
            help: help.to_owned(),
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        };
        let expected = [
            metric("a_total", "counter", "Things", &["b", "c"]),
            metric("d_seconds", "histogram", "Waits", &[]),
        ];
        assert_eq!(read(text).unwrap(), expected);
    }
}
