//! All cases at once, by many tenants, on two hosts with one state, over HTTP/1, HTTP/2 and TLS, with floods beside them: and a neighbor's
//! job on each host, which must come to its right end.

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

/// Tenants that go through all the cases.
const TENANTS: usize = 8;

/// How long the neighbor's speed is taken while it is alone, and each time beside the others.
const SPAN: Duration = Duration::from_secs(10);

/// What came of it.
#[derive(Debug, Default)]
pub struct MixtureReport {
    /// Cases that were gone through, and floods' rounds.
    pub acts: usize,
    /// Bytes that were seen by who must not, by what they were and where.
    pub foreign: BTreeMap<String, u64>,
    /// Panics in the hosts' logs.
    pub panics: usize,
    /// What a host's ledger, or the memory of its processes, was over its budget at most.
    pub over_budget: u64,
    /// The neighbor's speed on the host where it was slower, relative to its fair share: what it has alone, divided by all tenants.
    pub neighbor_ratio: f64,
    /// The same of the slowest [`SPAN`].
    pub neighbor_slowest_span: f64,
    /// Extractions that the neighbor began, and those that ended with the very bits they had when it was alone.
    pub neighbor_began: usize,
    /// See [`MixtureReport::neighbor_began`].
    pub neighbor_finished: usize,
    /// Why the others did not.
    pub neighbor_failures: Vec<String>,
    /// What is left of somebody who is gone.
    pub left_over: Vec<String>,
}

/// The neighbor's work on one host.
#[derive(Debug, Default)]
struct Work {
    rates: Vec<f64>,
    began: usize,
    failures: Vec<String>,
}

/// Has tenants do `cases` for `span`.
///
/// # Errors
/// When the scene itself fails.
pub async fn mixture(binary: &Path, cases: &[Case], span: Duration) -> Result<MixtureReport> {
    let scene = Scene::start_crowded(binary, TENANTS + FLOODS.len(), BUDGET).await?;
    let neighbors = [
        Neighbor::start(&scene).await?,
        Neighbor::start(&scene.on(1)).await?,
    ];
    // Both hosts share one machine.
    let (first, second) = tokio::join!(alone(&neighbors[0]), alone(&neighbors[1]));
    let alone = [first?, second?];
    let (stop, stopped) = watch::channel(false);
    let (mut actors, mut working, mut watching) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
    let hostile = scene.everybody().take(TENANTS + FLOODS.len());
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
    // Each of them listens until then.
    let _ = stop.send(true);
    let mut mixed = MixtureReport {
        acts: actors.join_all().await.into_iter().sum(),
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
    mixed.foreign = scene.foreign()?;
    mixed.panics = scene.panics()?;
    Ok(mixed)
}

impl MixtureReport {
    fn neighbor_worked(&mut self, work: Work, alone: f64) {
        let fair = alone / (TENANTS + FLOODS.len() + 1) as f64;
        let mean = work.rates.iter().sum::<f64>() / work.rates.len() as f64;
        let slowest = work.rates.iter().copied().fold(f64::INFINITY, f64::min);
        // Without a whole span there is no speed.
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

async fn alone(neighbor: &Neighbor) -> Result<f64> {
    neighbor.rate(SPAN).await
}

/// Goes through the cases again and again, from another one than the others; how many it ended. Beside so many others a case may be refused
/// in other words than alone, so what it sees is not judged here.
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

/// Floods, in rounds; how many there were.
async fn run_flood(scene: Scene, flood: Flood, mut stopped: Receiver<bool>) -> usize {
    let mut rounds = 0;
    let act = async {
        loop {
            // A host that refuses floods does right.
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

/// Extracts until it is stopped, and takes its speed.
async fn work(neighbor: Neighbor, stopped: Receiver<bool>) -> Work {
    let mut work = Work::default();
    while !*stopped.borrow() {
        let (began, mut images) = (tokio::time::Instant::now(), 0);
        while began.elapsed() < SPAN && !*stopped.borrow() {
            work.began += 1;
            match neighbor.check_patiently().await {
                Ok(rows) => images += rows,
                Err(error) => work.failures.push(format!("{error:#}")),
            }
        }
        if began.elapsed() >= SPAN {
            work.rates.push(images as f64 / began.elapsed().as_secs_f64());
        }
    }
    work
}

/// What the hosts still hold, and which processes still work, for tenants that have left.
async fn left_over(scene: &Scene) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for actor in scene.everybody() {
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
