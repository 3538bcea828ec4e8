//! `frostline admin simulate`.

use crate::output::{print_json, print_table};
use anyhow::{Context, Result, ensure};
use frostline_batching::simulate::{Outcome, Policy, Scenario, simulate};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A file of 1,024 jobs takes a third of it.
const LARGEST: u64 = 1 << 20;

/// Plays the scenario in `file`, with another policy if one is given.
pub(super) fn run(file: &Path, policy: Option<Policy>, json: bool) -> Result<()> {
    let mut scenario = read(file).with_context(|| format!("the scenario {}", file.display()))?;
    scenario.policy = policy.unwrap_or(scenario.policy);
    let outcome = simulate(&scenario).with_context(|| format!("the scenario {}", file.display()))?;
    if json {
        return Ok(print_json(&outcome)?);
    }
    show(&outcome)
}

fn read(file: &Path) -> Result<Scenario> {
    let mut text = Vec::new();
    File::open(file)?.take(LARGEST + 1).read_to_end(&mut text)?;
    ensure!(text.len() as u64 <= LARGEST, "it is larger than {LARGEST} bytes");
    Ok(serde_json::from_slice(&text)?)
}

fn show(outcome: &Outcome) -> Result<()> {
    let Outcome {
        policy,
        makespan,
        failures,
        longest_wait,
        runs,
        peak_bytes,
        tenants,
    } = outcome;
    let jobs = if *failures == 1 { "job" } else { "jobs" };
    say!("{policy}: {makespan:.1} s until the last job was done, {failures} {jobs} failed");
    say!(
        "longest wait {longest_wait:.2} s, {runs} runs, {:.1} GB at most",
        *peak_bytes as f64 / 1e9
    );
    let rows: Vec<Vec<String>> = tenants
        .iter()
        .map(|tenant| {
            let finished = tenant
                .finished
                .map_or_else(|| "-".to_owned(), |at| format!("{at:.1} s"));
            vec![
                tenant.tenant.clone(),
                tenant.weight.to_string(),
                format!("{:.1} s", tenant.device),
                format!("{:.1} %", tenant.share * 100.0),
                finished,
                tenant.failed.to_string(),
            ]
        })
        .collect();
    let header = ["TENANT", "WEIGHT", "DEVICE", "SHARE", "FINISHED", "FAILED"];
    Ok(print_table(
        &header,
        &[false, true, true, true, true, true],
        &rows,
    )?)
}
