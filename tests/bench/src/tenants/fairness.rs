//! Device seconds of tenants with continuous work: at equal weights, at weights 1:2:4, and the longest wait.

use super::{TENANTS, span};
use crate::fleet::load::{Job, Served};
use crate::fleet::looks::Had;
use crate::fleet::{Fleet, Metrics, Subject, Tenant};
use crate::report::Report;
use anyhow::{Context, Result};
use frostline_batching::device::QUANTUM;
use std::time::Duration;

const WEIGHTS: [u32; 3] = [1, 2, 4];

/// Requests that a tenant always has open where waits are measured: of one sample each, so that rows come as runs end, and a gap between them
/// is a wait.
const BACKLOG: usize = 6;

/// Where shares are counted work must wait for the lanes at any time, however long samples take to get there: requests, and samples of each.
const DEEP: (usize, usize) = (8, 32);

/// Seconds of the device that each tenant has, shared at 1:2:4: at half a second a run, a run more or less is 2.5 % of the least share.
const LEAST: u64 = 20;

/// The longest time to reach them.
const LONGEST: Duration = Duration::from_secs(240);

pub(super) async fn run(report: &mut Report, fleet: &Fleet, subjects: &[Subject]) -> Result<()> {
    let equal = fleet.tenants("equal", TENANTS).await?;
    let mut weighted = Vec::new();
    for weight in WEIGHTS {
        weighted.push(fleet.tenant(&format!("weight-{weight}"), weight).await?);
    }
    let lanes = fleet.lanes().len().max(1);
    let one = subjects.last().map(std::slice::from_ref).unwrap_or_default();
    let (mut jain, mut error, mut wait, mut without) = (1.0_f64, 0.0_f64, 0.0_f64, 0.0_f64);
    for subjects in [subjects, one] {
        println!("{} networks:", subjects.len());
        let equally = round(fleet, &equal, subjects, span(report, 40)).await?;
        jain = jain.min(index(&equally.seconds));
        wait = wait.max(over_bound(&equally, &[1; TENANTS], lanes));
        equally.show(&equal);
        let waits = round(fleet, &weighted, subjects, span(report, 20)).await?;
        wait = wait.max(over_bound(&waits, &WEIGHTS, lanes));
        waits.show(&weighted);
        let had = shares(fleet, &weighted, subjects, span(report, LEAST)).await?;
        error = error.max(weight_error(&had.seconds, &WEIGHTS));
        without = had.without.iter().copied().fold(without, f64::max);
    }
    println!(
        "Jain's index {jain:.4} at least; shares by weight {:.1} % off at most; longest wait {wait:.2} of the bound\n",
        100.0 * error
    );
    report.set("jain_min", jain);
    report.set("weight_error_max", error);
    report.set("weight_idle_looks", without);
    report.set("wait_over_bound_max", wait);
    Ok(())
}

/// What tenants have of the device that always have work for it, until each had so much.
async fn shares(fleet: &Fleet, tenants: &[Tenant], subjects: &[Subject], least: Duration) -> Result<Had> {
    let (open, request) = DEEP;
    let had = fleet
        .shares(
            &jobs(tenants, subjects, open, request),
            least.as_secs_f64(),
            LONGEST,
        )
        .await?;
    for ((tenant, seconds), without) in tenants.iter().zip(&had.seconds).zip(&had.without) {
        println!(
            "{:<10} {seconds:>7.2} s of the device, without work for it {:.1} % of the time",
            tenant.name,
            100.0 * without
        );
    }
    Ok(had)
}

fn jobs<'a>(tenants: &'a [Tenant], subjects: &'a [Subject], open: usize, request: usize) -> Vec<Job<'a>> {
    let pairs = tenants.iter().zip(subjects.iter().cycle());
    pairs
        .map(|(tenant, subject)| Job {
            request,
            open,
            ..Job::usual(tenant, subject)
        })
        .collect()
}

/// The service of each tenant.
struct Round {
    /// Of the device.
    seconds: Vec<f64>,
    served: Vec<Served>,
}

impl Round {
    fn show(&self, tenants: &[Tenant]) {
        for ((tenant, seconds), served) in tenants.iter().zip(&self.seconds).zip(&self.served) {
            println!(
                "{:<10} {seconds:>7.2} s of the device, {:>7.1} images/s, longest gap {:.2} s",
                tenant.name, served.images_per_second, served.longest_gap
            );
        }
    }
}

async fn round(fleet: &Fleet, tenants: &[Tenant], subjects: &[Subject], span: Duration) -> Result<Round> {
    let jobs = jobs(tenants, subjects, BACKLOG, 1);
    // Sessions are opened before anything counts.
    fleet.serve(&jobs, Duration::from_secs(2)).await?;
    let before = fleet.metrics()?;
    let served = fleet.serve(&jobs, span).await?;
    let after = fleet.metrics()?;
    let seconds = tenants.iter().map(|tenant| {
        let used = |metrics: &Metrics| {
            metrics
                .of_tenant("tenant_device_seconds_total", &tenant.name)
                .context("the host has no device time for a tenant")
        };
        Ok(used(&after)? - used(&before)?)
    });
    Ok(Round {
        seconds: seconds.collect::<Result<_>>()?,
        served,
    })
}

/// Jain's index: 1 if all have the same, 1 over their number if one has everything.
fn index(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    sum * sum / (values.len() as f64 * squares)
}

/// The largest relative difference of a tenant's device time from its weight.
fn weight_error(seconds: &[f64], weights: &[u32]) -> f64 {
    let total: f64 = seconds.iter().sum();
    let all: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
    let errors = seconds
        .iter()
        .zip(weights)
        .map(|(seconds, weight)| (seconds / total / (f64::from(*weight) / all) - 1.0).abs());
    errors.fold(0.0, f64::max)
}

/// The longest wait of a tenant over what it may be at most: one quantum, and of every other as many as its weight over one's own, on so
/// many lanes. A wait ends as a run begins, so it is the gap between two answers less what a run of the tenant takes in the mean.
fn over_bound(round: &Round, weights: &[u32], lanes: usize) -> f64 {
    let parts = round.served.iter().zip(&round.seconds).zip(weights);
    let parts = parts.map(|((served, seconds), own)| {
        let all: u32 = weights.iter().map(|weight| weight.div_ceil(*own)).sum();
        let others = all - 1;
        let bound = f64::from(1 + others) * QUANTUM.as_secs_f64() / lanes as f64;
        (served.longest_gap - seconds / served.images.max(1) as f64) / bound
    });
    parts.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_one_where_all_have_the_same() {
        assert_eq!(index(&[2.0, 2.0, 2.0]), 1.0);
        assert_eq!(index(&[6.0, 0.0, 0.0]), 1.0 / 3.0);
    }

    #[test]
    fn shares_are_held_against_weights() {
        assert!(weight_error(&[1.0, 2.0, 4.0], &WEIGHTS) < 1e-12);
        assert!((weight_error(&[2.0, 2.0, 3.0], &WEIGHTS) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_bound_grows_with_the_weight_of_the_others_and_a_run_is_no_wait() {
        let served = |longest_gap| Served {
            longest_gap,
            images: 4,
            ..Served::default()
        };
        let round = Round {
            seconds: vec![1.0; 3],
            served: [3.5 / 2.0 + 0.25, 1.0, 0.75].map(served).to_vec(),
        };
        assert_eq!(over_bound(&round, &WEIGHTS, 2), 1.0);
    }
}
