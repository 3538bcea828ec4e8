//! Compares the images per second of concurrent and single tenants, and of host-chosen and fixed batches.

use super::{TENANTS, span};
use crate::fleet::load::{Job, Served};
use crate::fleet::{Fleet, Subject, Tenant};
use crate::report::{Report, geometric_mean, median, quantile};
use anyhow::{Context, Result};
use std::time::Duration;

/// Fixed batch sizes to compare with the host's choice.
const FIXED: [usize; 3] = [1, 4, 16];

/// Rounds, seconds per turn, minimum number of engine batches per turn.
const ROUNDS: usize = 5;
const TURN: u64 = 3;
const RUNS: usize = 4;

/// Engine batches for the host to learn about a network. Includes three batches per size up to 64.
const LEARNING: usize = 32;

pub(super) async fn run(report: &mut Report, fleet: &Fleet, subjects: &[Subject]) -> Result<()> {
    let tenants = fleet.tenants("rates", TENANTS).await?;
    together(report, fleet, subjects, &tenants).await?;
    let one = tenants.first().context("no tenants")?;
    fixed(report, fleet, subjects, one).await
}

fn rate(served: &[Served]) -> f64 {
    served.iter().map(|served| served.images_per_second).sum()
}

/// Compares the rates of concurrent tenants with the rates of single tenants.
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
    println!("{:<12} {:>10} {:>12}", "network", "alone", "with others");
    for ((job, alone), served) in jobs.iter().zip(&alone).zip(&served) {
        let beside = served.images_per_second;
        println!("{:<12} {alone:>10.1} {beside:>12.2}", job.subject.name);
        sum += beside / alone;
    }
    println!("total rate of {TENANTS} concurrent tenants relative to each alone: {sum:.3}\n");
    report.set("throughput_8_vs_1", sum);
    Ok(())
}

/// Compares host-chosen batches with fixed ones, for one tenant.
async fn fixed(report: &mut Report, fleet: &Fleet, subjects: &[Subject], tenant: &Tenant) -> Result<()> {
    let choices: Vec<Option<usize>> = std::iter::once(None).chain(FIXED.map(Some)).collect();
    println!("images/s by batch: {choices:?}, and the ratio of the host's choice to the best fixed");
    let mut ratios = Vec::new();
    for subject in subjects {
        let jobs: Vec<[Job<'_>; 1]> = choices
            .iter()
            .map(|choice| {
                let mut job = Job::usual(tenant, subject);
                job.terms.fixed_batch = *choice;
                [job]
            })
            .collect();
        let turns = turns(fleet, &jobs, span(report, TURN)).await?;
        let best = (1..choices.len()).max_by(|one, other| turns.rate(*one).total_cmp(&turns.rate(*other)));
        let ratio = turns.ratio(0, best.context("no fixed batch")?);
        println!("{:<12} {:>8.1?} {ratio:.3}", subject.name, turns.rates());
        ratios.push(ratio);
    }
    let mean = geometric_mean(&ratios);
    println!("ratio to the best fixed batch: geometric mean {mean:.3}\n");
    report.set("throughput_vs_best_fixed", mean);
    report.set("throughput_vs_best_fixed_min", quantile(&ratios, 0.0));
    Ok(())
}

/// Rates by way and round, measured alternately.
struct Turns(Vec<Vec<f64>>);

/// Measures the ways in short alternating turns to distribute disturbances evenly. Rounds begin with
/// different ways. First, the host learns about the network by running `ways[0]` with host-chosen batches.
async fn turns<'a>(fleet: &Fleet, ways: &[impl AsRef<[Job<'a>]>], span: Duration) -> Result<Turns> {
    let mut rates = vec![Vec::new(); ways.len()];
    if let Some(chosen) = ways.first() {
        fleet.rate(chosen.as_ref(), span, LEARNING).await?;
    }
    for round in 0..ROUNDS {
        for turn in 0..ways.len() {
            let number = (round + turn) % ways.len();
            if let Some((way, rates)) = ways.get(number).zip(rates.get_mut(number)) {
                rates.push(fleet.rate(way.as_ref(), span, RUNS).await?);
            }
        }
    }
    Ok(Turns(rates))
}

impl Turns {
    fn rates_of(&self, way: usize) -> &[f64] {
        self.0.get(way).map(Vec::as_slice).unwrap_or_default()
    }

    fn rate(&self, way: usize) -> f64 {
        median(self.rates_of(way))
    }

    fn rates(&self) -> Vec<f64> {
        (0..self.0.len()).map(|way| self.rate(way)).collect()
    }

    /// The median ratio of two ways in the same round.
    fn ratio(&self, one: usize, other: usize) -> f64 {
        let pairs = self.rates_of(one).iter().zip(self.rates_of(other));
        median(&pairs.map(|(one, other)| one / other).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;

    #[test]
    fn ratios_are_of_turns_in_the_same_round() {
        let turns = Turns(vec![vec![1.0, 20.0, 3.0], vec![2.0, 10.0, 6.0]]);
        assert_eq!((turns.rate(0), turns.ratio(0, 1)), (3.0, 0.5));
    }
}
