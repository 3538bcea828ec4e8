//! Simulates the placement of samples on 1 to 1,000 hosts by the client's rule, and the placement after a
//! host is lost.

use crate::report::Report;
use anyhow::{Context, Result};
use frostline_client::place;
use std::time::Instant;

const HOSTS: [usize; 8] = [1, 2, 4, 8, 16, 64, 256, 1000];

/// Number of images in ImageNet's training set. `--quick` uses a tenth.
const SAMPLES: usize = 1_281_167;

/// Images in a global batch. A batch ends with the last host's answer.
const BATCH: usize = 1024;

pub(super) fn run(report: &mut Report) -> Result<()> {
    let samples = if report.quick() { SAMPLES / 10 } else { SAMPLES };
    let keys: Vec<String> = (0..samples)
        .map(|number| format!("train/n{:08}/{number:08}.JPEG", 1_440_764 + number % 1000))
        .collect();
    report.set("samples", samples);
    println!("{samples} samples; busiest and idlest relative to the mean\n");
    println!("hosts  busiest  idlest   per batch  moved    after loss    us/sample");
    for hosts in HOSTS {
        let names: Vec<String> = (0..hosts).map(|host| format!("frostline-{host}")).collect();
        let figures = simulate(&names, &keys).with_context(|| format!("{hosts} hosts"))?;
        println!(
            "{hosts:>5}  {:>7.3}  {:>6.3}  {:>10.2}  {:>5.3}  {:>12.3}  {:>11.2}",
            figures.busiest_load,
            figures.idlest_load,
            figures.busiest_load_in_batch,
            figures.moved,
            figures.busiest_load_after_loss,
            figures.microseconds
        );
        for (name, value) in [
            ("balance", figures.busiest_load),
            ("balance_batch", figures.busiest_load_in_batch),
            ("moved", figures.moved),
            ("balance_after_loss", figures.busiest_load_after_loss),
            ("placing_us", figures.microseconds),
        ] {
            report.set(&format!("simulated_{name}_{hosts}"), value);
        }
    }
    Ok(())
}

/// Balance for one number of hosts. Loads are relative to the mean load of a host.
struct Figures {
    /// Load of the busiest host.
    busiest_load: f64,
    /// Load of the idlest host.
    idlest_load: f64,
    /// Load of the busiest host within a batch of [`BATCH`] consecutive samples, averaged over all batches.
    busiest_load_in_batch: f64,
    /// Part of all samples that move to another host when the busiest host is lost.
    moved: f64,
    /// Load of the busiest remaining host after that loss.
    busiest_load_after_loss: f64,
    /// Microseconds per placement.
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
        .map(|batch| relative_maximum(&counted(batch, names.len())))
        .collect();
    let (lost, _) = counts
        .iter()
        .enumerate()
        .max_by_key(|(_, count)| **count)
        .context("no hosts")?;
    let mut left = names.to_vec();
    left.remove(lost);
    // Only samples from the lost host move (see the client's tests).
    let mut then = counts.clone();
    let moved = then.remove(lost);
    for (key, _) in keys.iter().zip(&placed).filter(|(_, host)| **host == lost) {
        if let Some(count) = place(&left, key).and_then(|host| then.get_mut(host)) {
            *count += 1;
        }
    }
    Ok(Figures {
        busiest_load: relative_maximum(&counts),
        idlest_load: *counts.iter().min().context("no hosts")? as f64 * names.len() as f64
            / keys.len() as f64,
        busiest_load_in_batch: batches.iter().sum::<f64>() / batches.len() as f64,
        moved: moved as f64 / keys.len() as f64,
        busiest_load_after_loss: relative_maximum(&then),
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

/// Largest count relative to the mean; 0 if all counts are 0.
fn relative_maximum(counts: &[usize]) -> f64 {
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
        assert!((1.0..1.1).contains(&figures.busiest_load) && (0.9..=1.0).contains(&figures.idlest_load));
        assert!((figures.moved - figures.busiest_load / 4.0).abs() < 1e-9);
        assert!(
            (1.0..1.1).contains(&figures.busiest_load_after_loss)
                && (1.0..1.3).contains(&figures.busiest_load_in_batch)
        );
    }
}
