//! Device seconds of tenants with continuous work: at equal weights, at weights 1:2:4, and the longest wait.

use super::{TENANTS, span};
use crate::fleet::lane_metrics::DeviceShares;
use crate::fleet::load::{Job, Served};
use crate::fleet::{Fleet, Metrics, Subject, Tenant};
use crate::report::Report;
use anyhow::{Context, Result};
use frostline_batching::device::TIME_SLICE;
use std::time::Duration;

const WEIGHTS: [u32; 3] = [1, 2, 4];

/// Open requests per tenant when waits are measured. Each has a single sample, so rows arrive when engine
/// batches end, and the gaps between them are waits.
const BACKLOG: usize = 6;

/// Open requests, and samples per request, when device time is measured. Work must wait for the lanes at any
/// time, even if samples arrive late.
const DEEP: (usize, usize) = (8, 32);

/// Minimum device seconds per tenant at weights 1:2:4. An engine batch runs for up to half a second, 2.5 % of
/// this time.
const MIN_DEVICE_SECONDS: u64 = 20;

/// Maximum duration for reaching this time.
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
        jain = jain.min(jain_index(&equally.seconds));
        wait = wait.max(wait_over_bound(&equally, &[1; TENANTS], lanes));
        equally.show(&equal);
        let waits = round(fleet, &weighted, subjects, span(report, 20)).await?;
        wait = wait.max(wait_over_bound(&waits, &WEIGHTS, lanes));
        waits.show(&weighted);
        let had = shares(fleet, &weighted, subjects, span(report, MIN_DEVICE_SECONDS)).await?;
        error = error.max(weight_error(&had.seconds, &WEIGHTS));
        without = had.unqueued_share.iter().copied().fold(without, f64::max);
    }
    println!(
        "minimum of Jain's index {jain:.4}, largest error of weighted shares {:.1} %, longest wait {wait:.2} of the bound\n",
        100.0 * error
    );
    report.set("jain_min", jain);
    report.set("weight_error_max", error);
    report.set("weight_idle_looks", without);
    report.set("wait_over_bound_max", wait);
    Ok(())
}

/// Measures the device time of tenants with queued work at all times, until each has had at least `least`.
async fn shares(
    fleet: &Fleet,
    tenants: &[Tenant],
    subjects: &[Subject],
    least: Duration,
) -> Result<DeviceShares> {
    let (open, request) = DEEP;
    let had = fleet
        .shares(
            &jobs(tenants, subjects, open, request),
            least.as_secs_f64(),
            LONGEST,
        )
        .await?;
    for ((tenant, seconds), without) in tenants.iter().zip(&had.seconds).zip(&had.unqueued_share) {
        println!(
            "{:<10} {seconds:>7.2} s of device time, no queued work in {:.1} % of the samples",
            tenant.name,
            100.0 * without
        );
    }
    Ok(had)
}

fn jobs<'a>(
    tenants: &'a [Tenant],
    subjects: &'a [Subject],
    concurrent_requests: usize,
    request: usize,
) -> Vec<Job<'a>> {
    let pairs = tenants.iter().zip(subjects.iter().cycle());
    pairs
        .map(|(tenant, subject)| Job {
            request,
            concurrent_requests,
            ..Job::usual(tenant, subject)
        })
        .collect()
}

/// Service for each tenant.
struct Round {
    /// Device seconds.
    seconds: Vec<f64>,
    served: Vec<Served>,
}

impl Round {
    fn show(&self, tenants: &[Tenant]) {
        for ((tenant, seconds), served) in tenants.iter().zip(&self.seconds).zip(&self.served) {
            println!(
                "{:<10} {seconds:>7.2} s of device time, {:>7.1} images/s, longest gap {:.2} s",
                tenant.name, served.images_per_second, served.longest_gap
            );
        }
    }
}

async fn round(fleet: &Fleet, tenants: &[Tenant], subjects: &[Subject], span: Duration) -> Result<Round> {
    let jobs = jobs(tenants, subjects, BACKLOG, 1);
    // Sessions are opened before the measurement.
    fleet.serve(&jobs, Duration::from_secs(2)).await?;
    let before = fleet.metrics()?;
    let served = fleet.serve(&jobs, span).await?;
    let after = fleet.metrics()?;
    let seconds = tenants.iter().map(|tenant| {
        let used = |metrics: &Metrics| {
            metrics
                .of_tenant("tenant_device_seconds_total", &tenant.name)
                .context("the host must report the device time of every tenant")
        };
        Ok(used(&after)? - used(&before)?)
    });
    Ok(Round {
        seconds: seconds.collect::<Result<_>>()?,
        served,
    })
}

/// Jain's index: 1 if all values are equal, 1 over their number if all but one are 0.
fn jain_index(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    sum * sum / (values.len() as f64 * squares)
}

/// Largest relative difference between a tenant's part of the device time and the part given by the weights.
fn weight_error(seconds: &[f64], weights: &[u32]) -> f64 {
    let total: f64 = seconds.iter().sum();
    let all: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
    let errors = seconds
        .iter()
        .zip(weights)
        .map(|(seconds, weight)| (seconds / total / (f64::from(*weight) / all) - 1.0).abs());
    errors.fold(0.0, f64::max)
}

/// Largest ratio between a tenant's longest wait and the bound. The bound is one time slice for the tenant,
/// plus the ratio of weights (rounded up) in time slices for each other tenant, divided by the number of
/// lanes. A wait ends when an engine batch begins, so it is the gap between two answers minus the mean device
/// time of an image.
fn wait_over_bound(round: &Round, weights: &[u32], lanes: usize) -> f64 {
    let parts = round.served.iter().zip(&round.seconds).zip(weights);
    let parts = parts.map(|((served, seconds), own)| {
        let all: u32 = weights.iter().map(|weight| weight.div_ceil(*own)).sum();
        let others = all - 1;
        let bound = f64::from(1 + others) * TIME_SLICE.as_secs_f64() / lanes as f64;
        (served.longest_gap - seconds / served.images.max(1) as f64) / bound
    });
    parts.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_one_where_all_have_the_same() {
        assert_eq!(jain_index(&[2.0, 2.0, 2.0]), 1.0);
        assert_eq!(jain_index(&[6.0, 0.0, 0.0]), 1.0 / 3.0);
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
        assert_eq!(wait_over_bound(&round, &WEIGHTS, 2), 1.0);
    }
}
