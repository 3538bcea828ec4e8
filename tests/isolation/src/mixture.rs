//! Runs all cases and floods concurrently: many tenants on two hosts with shared state, over HTTP/1, HTTP/2
//! and TLS. A neighbor's jobs on both hosts must complete correctly meanwhile.

use crate::case::Case;
use crate::floods::{FLOODS, Flood};
use crate::memory::{BUDGET, MemoryPeak, Watch, wait_until_released};
use crate::neighbor::Neighbor;
use crate::scene::Scene;
use anyhow::Result;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::sync::watch::{self, Receiver};
use tokio::task::JoinSet;

/// Number of case-running tenants.
const TENANTS: usize = 8;

/// Interval for measuring the neighbor's rate, first alone and then with the other tenants.
const RATE_INTERVAL: Duration = Duration::from_secs(10);

/// Result of a mixture.
#[derive(Debug, Default)]
pub struct MixtureReport {
    /// Number of completed cases and rounds of floods.
    pub completed: usize,
    /// Leaked bytes by kind and place.
    pub leaks: BTreeMap<String, u64>,
    /// Number of panics in the hosts' logs.
    pub panics: usize,
    /// Maximum excess over the budget, in the ledger or the memory of processes, in bytes.
    pub over_budget: u64,
    /// Mean rate of the neighbor relative to a fair share, on the slower host. The fair share is the rate of
    /// the neighbor alone divided by the number of tenants.
    pub neighbor_ratio: f64,
    /// Like [`MixtureReport::neighbor_ratio`], for the slowest `RATE_INTERVAL`.
    pub neighbor_slowest_span: f64,
    /// Number of extractions that the neighbor started.
    pub neighbor_began: usize,
    /// Number of extractions with the same activations, bit for bit, as the neighbor alone.
    pub neighbor_finished: usize,
    /// Errors of failed extractions.
    pub neighbor_failures: Vec<String>,
    /// Memory and processes that remain for disconnected tenants.
    pub left_over: Vec<String>,
}

/// Results of the neighbor on one host.
#[derive(Debug, Default)]
struct NeighborResults {
    rates: Vec<f64>,
    began: usize,
    failures: Vec<String>,
}

/// Runs `cases` and floods for `span`.
///
/// # Errors
/// Returns an error if the scene itself fails.
pub async fn mixture(binary: &Path, cases: &[Case], span: Duration) -> Result<MixtureReport> {
    let scene = Scene::start_crowded(binary, TENANTS + FLOODS.len(), BUDGET).await?;
    let neighbors = [
        Neighbor::start(&scene).await?,
        Neighbor::start(&scene.on(1)).await?,
    ];
    // Measured concurrently, because both hosts share one machine.
    let (first, second) = tokio::join!(rate_alone(&neighbors[0]), rate_alone(&neighbors[1]));
    let alone = [first?, second?];
    let (stop, stopped) = watch::channel(false);
    let (mut actors, mut working, mut watching) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
    let hostile = scene.actors().take(TENANTS + FLOODS.len());
    for (number, actor) in hostile.enumerate() {
        let stopped = stopped.clone();
        match number.checked_sub(TENANTS).and_then(|number| FLOODS.get(number)) {
            Some(flood) => actors.spawn(run_flood(actor, *flood, stopped)),
            None => actors.spawn(run_cases(actor, cases.to_vec(), number, stopped)),
        };
    }
    for neighbor in neighbors {
        working.spawn(work(neighbor, stopped.clone()));
    }
    for host in [0, 1] {
        let (scene, stopped) = (scene.on(host), stopped.clone());
        watching.spawn(async move { Watch::run(&scene, stopped).await });
    }
    tokio::time::sleep(span).await;
    // This cannot fail, because all tasks still listen.
    let _ = stop.send(true);
    let mut mixed = MixtureReport {
        completed: actors.join_all().await.into_iter().sum(),
        neighbor_ratio: f64::INFINITY,
        neighbor_slowest_span: f64::INFINITY,
        ..MixtureReport::default()
    };
    for (work, alone) in working.join_all().await.into_iter().zip(alone) {
        mixed.neighbor_worked(work, alone);
    }
    for seen in watching.join_all().await {
        let MemoryPeak { held, anonymous } = seen?;
        let over = held.max(anonymous.unwrap_or(0)).saturating_sub(BUDGET);
        mixed.over_budget = mixed.over_budget.max(over);
    }
    mixed.left_over = left_over(&scene).await?;
    mixed.leaks = scene.take_leaks()?;
    mixed.panics = scene.panics()?;
    Ok(mixed)
}

impl MixtureReport {
    fn neighbor_worked(&mut self, work: NeighborResults, alone: f64) {
        let fair = alone / (TENANTS + FLOODS.len() + 1) as f64;
        let mean = work.rates.iter().sum::<f64>() / work.rates.len() as f64;
        let slowest = work.rates.iter().copied().fold(f64::INFINITY, f64::min);
        // The mean is NaN if no interval was completed.
        self.neighbor_ratio = if mean.is_nan() {
            0.0
        } else {
            self.neighbor_ratio.min(mean / fair)
        };
        self.neighbor_slowest_span = self.neighbor_slowest_span.min(slowest / fair);
        self.neighbor_began += work.began;
        self.neighbor_finished += work.began - work.failures.len();
        self.neighbor_failures.extend(work.failures);
    }
}

async fn rate_alone(neighbor: &Neighbor) -> Result<f64> {
    neighbor.rate(RATE_INTERVAL).await
}

/// Runs cases repeatedly and returns the number of completed cases. Each tenant starts with a different case.
/// Results are not checked, because errors may differ under load.
async fn run_cases(scene: Scene, cases: Vec<Case>, number: usize, mut stopped: Receiver<bool>) -> usize {
    let (mut acts, first) = (0, number * cases.len() / TENANTS);
    let act = async {
        for case in cases.iter().cycle().skip(first) {
            acts += usize::from(case.run(&scene).await.is_ok());
        }
    };
    tokio::select! {
        () = act => {}
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
    acts
}

/// Runs a flood repeatedly and returns the number of rounds.
async fn run_flood(scene: Scene, flood: Flood, mut stopped: Receiver<bool>) -> usize {
    let mut rounds = 0;
    let act = async {
        loop {
            // Refusing a flood is correct.
            if flood(&scene, rounds).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            rounds += 1;
        }
    };
    tokio::select! {
        () = act => {}
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
    rounds
}

/// Extracts until stopped and records the rate of each interval.
async fn work(neighbor: Neighbor, stopped: Receiver<bool>) -> NeighborResults {
    let mut work = NeighborResults::default();
    while !*stopped.borrow() {
        let (began, mut images) = (tokio::time::Instant::now(), 0);
        while began.elapsed() < RATE_INTERVAL && !*stopped.borrow() {
            work.began += 1;
            match neighbor.check_with_retries().await {
                Ok(rows) => images += rows,
                Err(error) => work.failures.push(format!("{error:#}")),
            }
        }
        if began.elapsed() >= RATE_INTERVAL {
            work.rates.push(images as f64 / began.elapsed().as_secs_f64());
        }
    }
    work
}

/// Returns memory that the hosts still hold for disconnected tenants, and guest compilers that are still
/// running.
async fn left_over(scene: &Scene) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for actor in scene.actors() {
        for host in [0, 1] {
            let actor = actor.on(host);
            left.extend(
                wait_until_released(&actor)
                    .await
                    .err()
                    .map(|error| format!("{}: {error}", actor.name())),
            );
        }
    }
    for host in [0, 1] {
        let compiling = |process: &u32| {
            let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains("compile-guest")
        };
        let processes = scene.on(host).processes()?;
        left.extend(
            processes
                .into_iter()
                .filter(compiling)
                .map(|process| format!("the compiler {process}")),
        );
    }
    Ok(left)
}
