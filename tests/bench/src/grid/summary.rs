use super::cell::Cell;
use crate::networks::short;
use crate::report::{Report, geometric_mean, median, quantile};
use anyhow::{Result, bail};

/// A choice within this factor of the best is considered correct, as in the paper.
const CLOSE: f64 = 1.05;

/// Link rate in Mbit/s for comparison with the paper's speed-up.
const PAPER_LINK: f64 = 50.0;

/// Other policies to judge. Speed-ups are relative to `none`.
const OTHERS: [&str; 3] = ["hapi_size", "hapi_time", "freeze"];

/// Prints a table of all cells and sets the figures.
pub(super) fn show(report: &mut Report, cells: &[Cell]) -> Result<()> {
    if cells.is_empty() {
        bail!("no cells were measured before the time limit");
    }
    table(cells);
    let losses: Vec<f64> = cells.iter().map(loss).collect();
    judge(report, "", &losses);
    for policy in OTHERS {
        judge(report, &format!("{policy}_"), &policy_losses(cells, policy));
    }
    let speedups: Vec<f64> = cells.iter().filter_map(speedup).collect();
    let at_paper_link = cells.iter().filter(|cell| cell.mbit == PAPER_LINK);
    let at_paper_link: Vec<f64> = at_paper_link.filter_map(speedup).collect();
    let measured: usize = cells.iter().map(|cell| cell.timings.len()).sum();
    let errors = prediction_errors(cells);
    let ruled_out: usize = cells.iter().map(|cell| cell.ruled_out.len()).sum();
    report.set("cells", cells.len());
    report.set("cuts_measured", measured);
    report.set("cuts_ruled_out", ruled_out);
    let noise = noise(cells);
    report.set("noise_p90", noise);
    report.set("prediction_error_median", quantile(&errors, 0.5));
    report.set("prediction_error_p90", quantile(&errors, 0.9));
    let command_seconds: Vec<f64> = cells.iter().map(|cell| cell.command_seconds).collect();
    report.set("plan_command_seconds_median", quantile(&command_seconds, 0.5));
    report.set("speedup_max", quantile(&speedups, 1.0));
    report.set("speedup_max_50mbit", quantile(&at_paper_link, 1.0));
    report.set("speedup_geomean", geometric_mean(&speedups));
    report.set("speedup_min", quantile(&speedups, 0.0));
    println!(
        "\n{} cells, {measured} cuts measured, {ruled_out} cuts ruled out because of transfer time",
        cells.len()
    );
    if !noise.is_nan() {
        println!(
            "repeated runs differ by up to {:.1} % for 90 % of the candidates",
            noise * 100.0
        );
    }
    println!(
        "prediction error: median {:.0} %, 90th percentile {:.0} %",
        quantile(&errors, 0.5) * 100.0,
        quantile(&errors, 0.9) * 100.0
    );
    println!(
        "speed-up over `none`: maximum {:.1}, geometric mean {:.2}, minimum {:.2}",
        quantile(&speedups, 1.0),
        geometric_mean(&speedups),
        quantile(&speedups, 0.0)
    );
    if !at_paper_link.is_empty() {
        println!(
            "maximum speed-up over `none` at {PAPER_LINK} Mbit/s: {:.1}",
            quantile(&at_paper_link, 1.0)
        );
    }
    plan_times(report, cells);
    bytes(report, cells);
    cells.iter().for_each(|cell| against_freeze(report, cell));
    Ok(())
}

/// Reports the time per iteration for every measured cut relative to the freeze cut (figure 3 in the paper).
fn against_freeze(report: &mut Report, cell: &Cell) {
    let freeze = cell.policies.get("freeze");
    let Some(freeze) = freeze.and_then(|split| cell.timings.get(split)) else {
        return;
    };
    let (freeze, of) = (freeze.median(), format!("{}_{}mbit", cell.network, cell.mbit));
    let mut best = f64::INFINITY;
    for (split, timing) in &cell.timings {
        let ratio = timing.median() / freeze;
        best = best.min(ratio);
        report.set(&format!("{of}_{}_of_freeze", short(split)), ratio);
    }
    report.set(&format!("{of}_freeze_seconds"), freeze);
    report.set(&format!("{of}_best_of_freeze"), best);
}

fn table(cells: &[Cell]) {
    println!(
        "\n{:<12} {:>6} {:>5}  {:<40} {:>9} {:>9} {:<40} {:>9} {:>6} {:>8}",
        "network", "Mbit/s", "batch", "planned", "predicted", "s", "fastest", "s", "loss", "speed-up"
    );
    for cell in cells {
        println!(
            "{:<12} {:>6} {:>5}  {:<40} {:>9.3} {:>9.3} {:<40} {:>9.3} {:>5.1}% {:>8.2}",
            cell.network,
            cell.mbit,
            cell.batch,
            short(&cell.planned),
            cell.predicted.get(&cell.planned).copied().unwrap_or(f64::NAN),
            cell.seconds(&cell.planned).unwrap_or(f64::NAN),
            short(&cell.winner),
            cell.seconds(&cell.winner).unwrap_or(f64::NAN),
            loss(cell) * 100.0,
            speedup(cell).unwrap_or(f64::NAN)
        );
    }
    println!();
}

/// Relative loss of the planned cut against the fastest, measured directly against each other.
fn loss(cell: &Cell) -> f64 {
    (cell.planned_over_winner - 1.0).max(0.0)
}

/// Speed-up of the planned cut over `none`. Exactly 1 if the plan is `none`.
fn speedup(cell: &Cell) -> Option<f64> {
    Some(cell.seconds("none")? / cell.seconds(&cell.planned)?)
}

/// Relative losses of another policy's splits. A split that was ruled out counts with the lower bound, a
/// split equal to the planned one with the plan's loss.
fn policy_losses(cells: &[Cell], policy: &str) -> Vec<f64> {
    let loss_of = |cell: &Cell| {
        let split = cell.policies.get(policy)?;
        if *split == cell.planned {
            return Some(loss(cell));
        }
        let ratio = cell.seconds(split)? / cell.seconds(&cell.winner)?;
        Some((ratio - 1.0).max(0.0))
    };
    cells.iter().filter_map(loss_of).collect()
}

fn judge(report: &mut Report, prefix: &str, losses: &[f64]) {
    let close = losses.iter().filter(|loss| **loss <= CLOSE - 1.0).count();
    let share = close as f64 / losses.len() as f64;
    let worst = quantile(losses, 1.0);
    report.set(&format!("{prefix}within_5_percent_share"), share);
    report.set(&format!("{prefix}worst_loss"), worst);
    let name = if prefix.is_empty() {
        "the plan"
    } else {
        prefix.trim_end_matches('_')
    };
    println!(
        "{name:<10} is within 5 % of the best cut in {:>5.1} % of the cells, largest loss {:.0} %",
        share * 100.0,
        worst * 100.0
    );
}

/// Spread of the runs relative to the median, 90th percentile over all candidates. NaN if no run was
/// repeated.
fn noise(cells: &[Cell]) -> f64 {
    let timings = cells.iter().flat_map(|cell| cell.timings.values());
    let repeated = timings.filter(|timing| timing.runs.len() > 1);
    let spreads: Vec<f64> = repeated
        .map(|timing| (quantile(&timing.runs, 1.0) - quantile(&timing.runs, 0.0)) / timing.median())
        .collect();
    quantile(&spreads, 0.9)
}

/// Relative prediction errors of all measured cuts.
fn prediction_errors(cells: &[Cell]) -> Vec<f64> {
    let errors = |cell: &Cell| -> Vec<f64> {
        let error = |(split, predicted): (&String, &f64)| {
            let measured = cell.timings.get(split)?.median();
            Some((predicted / measured - 1.0).abs())
        };
        cell.predicted.iter().filter_map(error).collect()
    };
    cells.iter().flat_map(errors).collect()
}

/// Reports the time for choosing, without measuring.
fn plan_times(report: &mut Report, cells: &[Cell]) {
    let (typical, longest) = choosing_seconds(cells);
    report.set("plan_seconds_median", typical);
    report.set("plan_seconds_max", longest);
    println!(
        "time for choosing a split after all measurements: median {:.2} ms, maximum {:.2} ms",
        typical * 1e3,
        longest * 1e3
    );
}

/// Median and maximum.
fn choosing_seconds(cells: &[Cell]) -> (f64, f64) {
    let seconds: Vec<f64> = cells.iter().map(|cell| cell.choosing_seconds).collect();
    (median(&seconds), quantile(&seconds, 1.0))
}

/// Reports the ratio of raw object bytes to the bytes transferred at the planned cut, for each network and
/// link and for the slowest link of each network.
fn bytes(report: &mut Report, cells: &[Cell]) {
    println!("\nbytes on the link at the planned cut against the raw objects");
    for network in cells.chunk_by(|one, other| one.network == other.network) {
        let ratio = |cell: &Cell| Some(cell.object_bytes / cell.timings.get(&cell.planned)?.bytes);
        let mut ratios = Vec::new();
        for cell in network {
            let Some(ratio) = ratio(cell) else { continue };
            report.set(&format!("{}_bytes_ratio_{}mbit", cell.network, cell.mbit), ratio);
            ratios.push(format!("{ratio:.2} at {} Mbit/s", cell.mbit));
        }
        let slowest = network
            .iter()
            .min_by(|one, other| one.mbit.total_cmp(&other.mbit));
        if let Some((cell, ratio)) = slowest.and_then(|cell| Some((cell, ratio(cell)?))) {
            report.set(&format!("{}_bytes_ratio", cell.network), ratio);
            println!("  {:<12} {} times fewer", cell.network, ratios.join(", "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::cell::Timing;
    use std::collections::BTreeMap;

    fn cell(planned: &str, planned_over_winner: f64) -> Cell {
        let timing = |runs: &[f64], bytes: f64| -> Timing {
            let value = serde_json::json!({"runs": runs, "seconds": runs, "bytes": bytes, "run_bytes": []});
            serde_json::from_value(value).unwrap()
        };
        Cell {
            key: "alexnet 50 Mbit/s batch 8".to_owned(),
            commit: String::new(),
            network: "alexnet".to_owned(),
            mbit: 50.0,
            batch: 8,
            planned: planned.to_owned(),
            encoding: "f16".to_owned(),
            bottleneck: "link".to_owned(),
            predicted: BTreeMap::from([("a".to_owned(), 1.1), ("b".to_owned(), 1.0)]),
            command_seconds: 0.1,
            choosing_seconds: 0.001,
            policies: BTreeMap::from([("freeze".to_owned(), "c".to_owned())]),
            timings: BTreeMap::from([
                ("a".to_owned(), timing(&[1.0, 1.1, 0.9], 10.0)),
                ("b".to_owned(), timing(&[2.0], 20.0)),
                ("none".to_owned(), timing(&[3.0, 3.0], 80.0)),
            ]),
            ruled_out: BTreeMap::from([("c".to_owned(), 4.0)]),
            winner: "a".to_owned(),
            planned_over_winner,
            object_bytes: 80.0,
        }
    }

    #[test]
    fn a_ruled_out_split_counts_with_its_lower_bound() {
        assert_eq!(policy_losses(&[cell("a", 1.0)], "freeze"), [3.0]);
        assert_eq!(policy_losses(&[cell("c", 1.02)], "freeze"), [1.02 - 1.0]);
    }

    #[test]
    fn a_resumed_cell_still_knows_what_choosing_took() {
        let kept: Vec<Cell> = [0.001, 0.009, 0.002]
            .into_iter()
            .map(|choosing_seconds| Cell {
                choosing_seconds,
                ..cell("a", 1.0)
            })
            .map(|cell| serde_json::from_str(&serde_json::to_string(&cell).unwrap()).unwrap())
            .collect();
        assert_eq!(choosing_seconds(&kept), (0.002, 0.009));
    }

    #[test]
    fn losses_speedups_and_noise_follow_from_the_times() {
        let cells = [cell("a", 0.99), cell("b", 2.0)];
        assert_eq!(cells.each_ref().map(loss), [0.0, 1.0]);
        assert_eq!(cells.each_ref().map(speedup), [Some(3.0), Some(1.5)]);
        assert!((noise(&cells) - 0.2).abs() < 1e-9);
        assert!((quantile(&prediction_errors(&cells), 1.0) - 0.5).abs() < 1e-9);
    }
}
