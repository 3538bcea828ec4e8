//! Images a second: of eight tenants at once and of each alone, of batches of the host's choice and fixed ones, of small requests whose
//! rows share runs and those that do not.

use super::{TENANTS, span};
use crate::fleet::load::{Job, Served};
use crate::fleet::{Fleet, Subject, Tenant};
use crate::report::{Report, geometric_mean, median};
use anyhow::{Context, Result};
use frostline_wire::Terms;
use std::time::Duration;

/// Fixed batches that the host's choice is held against.
const FIXED: [usize; 3] = [1, 4, 16];

/// Turns of what is compared.
const ROUNDS: usize = 3;

/// Tenants with small requests, their samples and how many each has open.
const SMALL: usize = 4;
const SMALL_REQUEST: usize = 2;
const SMALL_OPEN: usize = 2;

pub(super) async fn run(report: &mut Report, fleet: &Fleet, subjects: &[Subject]) -> Result<()> {
    let tenants = fleet.tenants("rates", TENANTS).await?;
    together(report, fleet, subjects, &tenants).await?;
    let one = tenants.first().context("no tenants")?;
    fixed(report, fleet, subjects, one).await?;
    let small = tenants.get(..SMALL).unwrap_or_default();
    merged(report, fleet, subjects, small).await
}

fn rate(served: &[Served]) -> f64 {
    served.iter().map(|served| served.images_per_second).sum()
}

/// Each tenant alone, then all at once.
async fn together(
    report: &mut Report,
    fleet: &Fleet,
    subjects: &[Subject],
    tenants: &[Tenant],
) -> Result<()> {
    let pairs = tenants.iter().zip(subjects.iter().cycle());
    let jobs: Vec<Job<'_>> = pairs
        .map(|(tenant, subject)| Job::usual(tenant, subject))
        .collect();
    let mut alone = Vec::new();
    for job in &jobs {
        let served = fleet.serve(std::slice::from_ref(job), span(report, 10)).await?;
        alone.push(rate(&served));
    }
    let served = fleet.serve(&jobs, span(report, 60)).await?;
    let mut sum = 0.0;
    println!("{:<12} {:>10} {:>12}", "network", "alone", "beside 7");
    for ((job, alone), served) in jobs.iter().zip(&alone).zip(&served) {
        let beside = served.images_per_second;
        println!("{:<12} {alone:>10.1} {beside:>12.2}", job.subject.name);
        sum += beside / alone;
    }
    println!("{TENANTS} tenants at once had {sum:.3} of the rate of one\n");
    report.set("throughput_8_vs_1", sum);
    Ok(())
}

/// The host's batches against fixed ones, in turns, one tenant.
async fn fixed(report: &mut Report, fleet: &Fleet, subjects: &[Subject], tenant: &Tenant) -> Result<()> {
    let choices: Vec<Option<usize>> = std::iter::once(None).chain(FIXED.map(Some)).collect();
    println!("images/s by batch: {choices:?}");
    let mut ratios = Vec::new();
    for subject in subjects {
        let mut rates = vec![Vec::new(); choices.len()];
        for _ in 0..ROUNDS {
            for (choice, rates) in choices.iter().zip(&mut rates) {
                let mut job = Job::usual(tenant, subject);
                job.terms.fixed_batch = *choice;
                rates.push(rate(&fleet.serve(&[job], span(report, 6)).await?));
            }
        }
        let rates: Vec<f64> = rates.iter().map(|rates| median(rates)).collect();
        let (own, fixed) = rates.split_first().context("no rates")?;
        let best = fixed.iter().copied().fold(0.0, f64::max);
        println!("{:<12} {rates:>8.1?} {:.3}", subject.name, own / best);
        ratios.push(own / best);
    }
    let mean = geometric_mean(&ratios);
    println!("against the best of them: {mean:.3} in the geometric mean\n");
    report.set("throughput_vs_best_fixed", mean);
    report.set("throughput_vs_best_fixed_min", least(&ratios));
    Ok(())
}

/// Small requests of several tenants, in turns with and without runs that they share.
async fn merged(report: &mut Report, fleet: &Fleet, subjects: &[Subject], tenants: &[Tenant]) -> Result<()> {
    println!(
        "{SMALL} tenants with {SMALL_OPEN} requests of {SMALL_REQUEST} samples: images/s apart, in shared runs"
    );
    let mut gains = Vec::new();
    for subject in subjects {
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (shared, rates) in [false, true].into_iter().zip(&mut rates) {
                rates.push(small(fleet, subject, tenants, shared, span(report, 6)).await?);
            }
        }
        let [apart, shared] = rates.map(|rates| median(&rates));
        println!(
            "{:<12} {apart:>8.1} {shared:>8.1} {:.3}",
            subject.name,
            shared / apart
        );
        gains.push(shared / apart);
    }
    let mean = geometric_mean(&gains);
    println!("sharing runs brings {mean:.3} in the geometric mean\n");
    report.set("merge_gain", mean);
    report.set("merge_gain_min", least(&gains));
    Ok(())
}

async fn small(
    fleet: &Fleet,
    subject: &Subject,
    tenants: &[Tenant],
    shared_runs: bool,
    span: Duration,
) -> Result<f64> {
    let terms = Terms {
        shared_runs,
        ..Terms::default()
    };
    let jobs: Vec<Job<'_>> = tenants
        .iter()
        .map(|tenant| Job {
            tenant,
            subject,
            terms,
            request: SMALL_REQUEST,
            open: SMALL_OPEN,
        })
        .collect();
    Ok(rate(&fleet.serve(&jobs, span).await?))
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}
