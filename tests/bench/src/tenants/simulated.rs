//! HAPI's jobs in the simulator, which drives the code that decides on hosts in virtual time.

use crate::report::Report;
use crate::run::{frostline, text};
use anyhow::{Context, Result};
use frostline_e2e::repository;
use serde_json::Value;

/// HAPI's 8 and 18 jobs at once.
const EIGHT: &str = "hapi-8.json";
const EIGHTEEN: &str = "hapi-18.json";

/// What decides by default, what HAPI has, and its batches without adaptation.
const OURS: &str = "frostline";
const HAPI: &str = "hapi-lp";
const FIXED: &str = "fixed:1000";

pub(super) fn run(report: &mut Report) -> Result<()> {
    for (key, policy) in [
        ("simulated_failures_18", OURS),
        ("simulated_failures_18_fixed", FIXED),
        ("simulated_failures_18_hapi_lp", HAPI),
    ] {
        let failures = simulated(EIGHTEEN, policy, usize::MAX, "failures")?;
        println!("18 jobs by {policy}: {failures} failed");
        report.set(key, failures);
    }
    for (key, policy) in [
        ("simulated_makespan_8_vs_1", OURS),
        ("simulated_makespan_8_vs_1_hapi_lp", HAPI),
    ] {
        let all = simulated(EIGHT, policy, usize::MAX, "makespan")?;
        let ratio = all / simulated(EIGHT, policy, 1, "makespan")?;
        println!("8 jobs by {policy}: {all:.0} s, {ratio:.2} times that of one");
        report.set(key, ratio);
    }
    Ok(())
}

/// A figure of the first `jobs` of a replay by a policy.
fn simulated(replay: &str, policy: &str, jobs: usize, figure: &str) -> Result<f64> {
    let replays = repository().join("host-ops/batching/docs/replays");
    let bytes = std::fs::read(replays.join(replay)).context(replay.to_owned())?;
    let mut scenario: Value = serde_json::from_slice(&bytes)?;
    let fields = scenario.as_object_mut().context("a scenario is an object")?;
    fields.insert("policy".to_owned(), policy.into());
    if let Some(Value::Array(all)) = fields.get_mut("jobs") {
        all.truncate(jobs);
    }
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("scenario.json");
    std::fs::write(&file, scenario.to_string())?;
    let outcome = frostline(&["admin", "simulate", text(&file)?])?;
    let value = outcome.first().and_then(|outcome| outcome.get(figure)?.as_f64());
    value.with_context(|| format!("frostline admin simulate told no {figure}"))
}
