//! How samples fall on 1 to 1,000 hosts, by the client's own rule, and what becomes of them when a host is lost.

use crate::report::Report;
use anyhow::{Context, Result};
use frostline_client::place;
use std::time::Instant;

/// Numbers of hosts.
const HOSTS: [usize; 8] = [1, 2, 4, 8, 16, 64, 256, 1000];

/// Images of ImageNet's training set; a tenth of it with `--quick`.
const SAMPLES: usize = 1_281_167;

/// Images of a global batch, which is over when the last host has answered.
const BATCH: usize = 1024;

pub(super) fn run(report: &mut Report) -> Result<()> {
    let samples = if report.quick() { SAMPLES / 10 } else { SAMPLES };
    let keys: Vec<String> = (0..samples)
        .map(|number| format!("train/n{:08}/{number:08}.JPEG", 1_440_764 + number % 1000))
        .collect();
    report.set("samples", samples);
    println!("{samples} samples; busiest and idlest relative to the mean\n");
    println!("hosts  busiest  idlest  of a batch  moved  busiest then  us a sample");
    for hosts in HOSTS {
        let names: Vec<String> = (0..hosts).map(|host| format!("frostline-{host}")).collect();
        let figures = simulate(&names, &keys).with_context(|| format!("{hosts} hosts"))?;
        println!(
            "{hosts:>5}  {:>7.3}  {:>6.3}  {:>10.2}  {:>5.3}  {:>12.3}  {:>11.2}",
            figures.most,
            figures.least,
            figures.batch,
            figures.moved,
            figures.most_then,
            figures.microseconds
        );
        for (name, value) in [
            ("balance", figures.most),
            ("balance_batch", figures.batch),
            ("moved", figures.moved),
            ("balance_after_loss", figures.most_then),
            ("placing_us", figures.microseconds),
        ] {
            report.set(&format!("simulated_{name}_{hosts}"), value);
        }
    }
    Ok(())
}

/// Of one number of hosts.
struct Figures {
    /// The largest and the least share of the samples, over the mean.
    most: f64,
    least: f64,
    /// The largest share of a batch of [`BATCH`] consecutive samples, over the mean: the average of all batches.
    batch: f64,
    /// The part of all samples that another host reads once the busiest is lost.
    moved: f64,
    /// The largest share then, over the mean of those that are left.
    most_then: f64,
    /// What placing one sample takes.
    microseconds: f64,
}

fn simulate(names: &[String], keys: &[String]) -> Result<Figures> {
    let start = Instant::now();
    let placed: Vec<usize> = keys
        .iter()
        .map(|key| place(names, key))
        .collect::<Option<_>>()
        .context("no hosts")?;
    let microseconds = start.elapsed().as_secs_f64() * 1e6 / keys.len() as f64;
    let counts = counted(&placed, names.len());
    let batches: Vec<f64> = placed
        .chunks_exact(BATCH)
        .map(|batch| most(&counted(batch, names.len())))
        .collect();
    let (lost, _) = counts
        .iter()
        .enumerate()
        .max_by_key(|(_, count)| **count)
        .context("no hosts")?;
    let mut left = names.to_vec();
    left.remove(lost);
    // Only what the lost host had is placed anew; the client's own tests show that nothing else moves.
    let mut then = counts.clone();
    let moved = then.remove(lost);
    for (key, _) in keys.iter().zip(&placed).filter(|(_, host)| **host == lost) {
        if let Some(count) = place(&left, key).and_then(|host| then.get_mut(host)) {
            *count += 1;
        }
    }
    Ok(Figures {
        most: most(&counts),
        least: *counts.iter().min().context("no hosts")? as f64 * names.len() as f64 / keys.len() as f64,
        batch: batches.iter().sum::<f64>() / batches.len() as f64,
        moved: moved as f64 / keys.len() as f64,
        most_then: most(&then),
        microseconds,
    })
}

fn counted(placed: &[usize], hosts: usize) -> Vec<usize> {
    let mut counts = vec![0; hosts];
    for host in placed {
        if let Some(count) = counts.get_mut(*host) {
            *count += 1;
        }
    }
    counts
}

/// The largest over the mean; 0 without hosts.
fn most(counts: &[usize]) -> f64 {
    let all: usize = counts.iter().sum();
    let largest = counts.iter().max().copied().unwrap_or_default();
    if all == 0 {
        return 0.0;
    }
    largest as f64 * counts.len() as f64 / all as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_hosts_share_is_all_that_moves() {
        let names: Vec<String> = (0..4).map(|host| format!("frostline-{host}")).collect();
        let keys: Vec<String> = (0..8 * BATCH)
            .map(|number| format!("train/{number}.jpg"))
            .collect();
        let figures = simulate(&names, &keys).unwrap();
        assert!((1.0..1.1).contains(&figures.most) && (0.9..=1.0).contains(&figures.least));
        assert!((figures.moved - figures.most / 4.0).abs() < 1e-9);
        assert!((1.0..1.1).contains(&figures.most_then) && (1.0..1.3).contains(&figures.batch));
    }
}
