//! Queries of the dashboard, the rules and autoscaling, evaluated by a Prometheus server.

use super::tools::{chart, documents, field};
use crate::workspace::output;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time within which each query must return data. Prometheus scrapes and evaluates every second.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Values of dashboard variables.
const VARIABLES: [(&str, &str); 3] = [("$__rate_interval", "1m"), ("$namespace", "prod"), ("$pod", ".*")];

/// PromQL query and a label for the table.
pub(super) struct Query {
    source: String,
    text: String,
}

impl Query {
    fn new(source: impl Into<String>, text: &str) -> Self {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        Self {
            source: source.into(),
            text,
        }
    }
}

/// Collects all queries. `rules` is the rendered rule file of the chart.
pub(super) fn all(rules: &Value) -> Result<Vec<Query>> {
    let mut queries = dashboard()?;
    for rule in rules
        .pointer("/groups")
        .into_iter()
        .flat_map(each)
        .flat_map(|group| each(field(group, "rules")))
    {
        let text = text(rule, "expr")?;
        match field(rule, "record").as_str() {
            Some(name) => {
                queries.push(Query::new(format!("rule {name}"), text));
                queries.push(Query::new(format!("{name}, recorded"), name));
            }
            None => queries.push(Query::new(
                format!("alert {}", field(rule, "alert").as_str().unwrap_or_default()),
                compared_expression(text)?,
            )),
        }
    }
    queries.push(autoscaling()?);
    Ok(queries)
}

fn each(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str> {
    field(value, name)
        .as_str()
        .with_context(|| format!("no {name} in {value}"))
}

/// Returns the left side of an alert `LEFT > NUMBER`, which has a value even if the alert does not fire.
fn compared_expression(expression: &str) -> Result<&str> {
    let compared = [" > ", " < "]
        .iter()
        .find_map(|operator| expression.rsplit_once(operator));
    compared
        .filter(|(_, number)| number.trim().parse::<f64>().is_ok())
        .map(|(left, _)| left)
        .with_context(|| format!("an alert must be LEFT > NUMBER or LEFT < NUMBER: {expression}"))
}

/// Collects the queries of panels and variables.
fn dashboard() -> Result<Vec<Query>> {
    let file = chart().join("files/dashboard.json");
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(file)?)?;
    let mut queries = Vec::new();
    for variable in each(field(field(&dashboard, "templating"), "list")) {
        if let Some(query) = variable.pointer("/query/query").and_then(Value::as_str) {
            let inside = query
                .strip_prefix("label_values(")
                .and_then(|rest| rest.rsplit_once(", "));
            let (series, label) = inside.context("a variable must be label_values(SERIES, LABEL)")?;
            let label = label.trim_end_matches(')');
            queries.push(Query::new(
                format!("variable {label}"),
                &with_variables(&format!("count by ({label}) ({series})")),
            ));
        }
    }
    let mut row = "";
    for panel in each(field(&dashboard, "panels")) {
        let title = text(panel, "title")?;
        if field(panel, "type") == "row" {
            row = title;
        }
        for target in each(field(panel, "targets")) {
            let legend = field(target, "legendFormat")
                .as_str()
                .filter(|legend| !legend.starts_with('{'));
            let legend = legend.map(|legend| format!(" ({legend})")).unwrap_or_default();
            queries.push(Query::new(
                format!("{row}: {title}{legend}"),
                &with_variables(text(target, "expr")?),
            ));
        }
    }
    Ok(queries)
}

fn with_variables(query: &str) -> String {
    VARIABLES.iter().fold(query.to_owned(), |query, (name, value)| {
        query.replace(name, value)
    })
}

/// Returns the query of prometheus-adapter for pods in a namespace.
fn autoscaling() -> Result<Query> {
    let file = documents(&fs::read_to_string(chart().join("files/adapter.yaml"))?)?;
    let rule = file.first().and_then(|file| file.pointer("/rules/custom/0"));
    let rule = rule.context("files/adapter.yaml has no rule")?;
    let series = text(rule, "seriesQuery")?.split('{').next().unwrap_or_default();
    let query = text(rule, "metricsQuery")?
        .replace("<<.Series>>", series)
        .replace("<<.LabelMatchers>>", "namespace=\"prod\"")
        .replace("<<.GroupBy>>", "pod");
    Ok(Query::new("autoscaling", &query))
}

/// Repeats the queries until each returns a value. Formats the values as a table.
///
/// # Errors
/// Returns an error if queries have no value within [`TIMEOUT`].
pub(super) fn table(queries: &[Query], prometheus: &str) -> Result<String> {
    let until = Instant::now() + TIMEOUT;
    let mut answers: Vec<Result<Option<String>>> = queries.iter().map(|_| Ok(None)).collect();
    loop {
        for (query, answer) in queries.iter().zip(&mut answers) {
            if !matches!(answer, Ok(Some(_))) {
                *answer = evaluate(&query.text, prometheus);
            }
        }
        // Prometheus may still be starting or waiting for the next scrape, and some values exist only
        // briefly.
        if answers.iter().all(|answer| matches!(answer, Ok(Some(_)))) || Instant::now() >= until {
            break;
        }
        sleep(Duration::from_millis(300));
    }
    let mut table = "| source | query | answer |\n|---|---|---|\n".to_owned();
    let mut without = String::new();
    for (Query { source, text }, answer) in queries.iter().zip(answers) {
        match answer {
            Ok(Some(answer)) => writeln!(table, "| {source} | `{}` | {answer} |", text.replace('|', "\\|"))?,
            Ok(None) => write!(without, "\n{source}: no answer: {text}")?,
            Err(error) => write!(without, "\n{source}: {error:#}: {text}")?,
        }
    }
    if without.is_empty() {
        return Ok(table);
    }
    bail!("queries without an answer:{without}")
}

/// Returns the number of series and the range of values, or `None` if no value is numeric.
fn evaluate(query: &str, prometheus: &str) -> Result<Option<String>> {
    let arguments = ["query", "--format", "json", "instant", prometheus, query];
    let series: Value = serde_json::from_str(&output(Command::new("promtool").args(arguments))?)?;
    let values = each(&series).filter_map(|series| series.pointer("/value/1")?.as_str()?.parse::<f64>().ok());
    let mut values: Vec<f64> = values.filter(|value| !value.is_nan()).collect();
    values.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (values.first(), values.last()) else {
        return Ok(None);
    };
    let range = if values.len() == 1 {
        format_number(*least)
    } else {
        format!(
            "{} to {} ({} series)",
            format_number(*least),
            format_number(*most),
            values.len()
        )
    };
    Ok(Some(range))
}

/// Formats a number with three significant digits.
fn format_number(value: f64) -> String {
    if value == 0.0 || (value.fract() == 0.0 && value.abs() < 1e6) {
        return format!("{value:.0}");
    }
    let whole = value.abs().log10().floor();
    if (-3.0..6.0).contains(&whole) {
        let decimals = (2.0 - whole).clamp(0.0, 6.0);
        format!("{value:.*}", decimals as usize)
    } else {
        format!("{value:.2e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_is_a_comparison_with_a_number() {
        assert_eq!(
            compared_expression("(a - time()) / 86400 < 14").unwrap(),
            "(a - time()) / 86400"
        );
        assert_eq!(
            compared_expression("a{b=\"c > 1\"} > 0.2").unwrap(),
            "a{b=\"c > 1\"}"
        );
        assert!(compared_expression("a > b").is_err() && compared_expression("a").is_err());
    }

    #[test]
    fn numbers_are_short() {
        let numbers = [0.0, 12.0, 0.0123456, 1234.56, 1.5e9].map(format_number);
        assert_eq!(numbers, ["0", "12", "0.0123", "1235", "1.50e9"]);
    }
}
