//! Runs all cases and floods concurrently: many tenants on two hosts with shared state, over HTTP/1, HTTP/2
//! and TLS. A neighbor's jobs on both hosts must complete correctly meanwhile.

use crate::case::Case;
use crate::floods::{FLOODS, Flood};
use crate::footprint::{CpuTimes, Footprint, Uncharged};
use crate::memory::{BUDGET, MemoryPeak, Watch, wait_until_released};
use crate::neighbor::Neighbor;
use crate::scene::Scene;
use crate::slow::keep_lanes;
use anyhow::{Context, Result};
use frostline_wire::{JobStage, StageSeconds};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use tokio::sync::watch::{self, Receiver};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Number of case-running tenants.
const TENANTS: usize = 8;

/// Interval for measuring the neighbor's rate, first alone and then with the other tenants.
const RATE_INTERVAL: Duration = Duration::from_secs(10);

/// Pause of a tenant after a refusal.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// Settings of a mixture.
#[derive(Debug, Clone, Copy)]
pub struct MixtureSettings {
    /// Duration of the attacks.
    pub span: Duration,
    /// Time after the attacks within which the hosts must release everything.
    pub grace: Duration,
    /// Adds a tenant whose kernels cannot be interrupted.
    pub slow_kernels: bool,
}

/// Result of a mixture.
#[derive(Debug, Default)]
pub struct MixtureReport {
    /// Number of completed cases and rounds of floods.
    pub completed: usize,
    /// Names of the cases that were completed at least once.
    pub tried: BTreeSet<String>,
    /// Maximum anonymous memory on a host in addition to the idle base, the reservations and 64 MiB, in
    /// bytes.
    pub unowned_bytes: u64,
    /// Part of the CPU time of work for tenants that no tenant was charged for.
    pub uncharged_cpu_share: f64,
    /// Uncharged and total CPU time by kind of work.
    pub uncharged_cpu: String,
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
    /// Where the neighbor's extractions and their images waited during that interval.
    pub neighbor_slowest_waits: String,
    /// Number of extractions that the neighbor started.
    pub neighbor_began: usize,
    /// Number of extractions with the same activations, bit for bit, as the neighbor alone.
    pub neighbor_finished: usize,
    /// Errors of failed extractions.
    pub neighbor_failures: Vec<String>,
    /// Work, memory, threads, files and processes that remain for disconnected tenants.
    pub left_over: Vec<String>,
}

/// Results of the neighbor on one host.
#[derive(Debug, Default)]
struct NeighborResults {
    spans: Vec<Span>,
    began: usize,
    failures: Vec<String>,
}

/// Results of the neighbor in a [`RATE_INTERVAL`].
#[derive(Debug, Default)]
struct Span {
    images: usize,
    took: Duration,
    /// Seconds in each stage of the host, summed over the images of all complete extractions.
    stages: StageSeconds,
    refusals: usize,
    /// Time of refused attempts, with the pauses after them.
    refused_for: Duration,
    last_refusal: String,
}

impl Span {
    fn rate(&self) -> f64 {
        self.images as f64 / self.took.as_secs_f64()
    }

    /// Describes where the time went: the mean seconds of an image in each stage, and refusals.
    fn waits(&self) -> String {
        let images = self.images.max(1) as f64;
        let mut text = format!("{} images in {:.1} s", self.images, self.took.as_secs_f64());
        for stage in JobStage::all() {
            let seconds = self.stages.seconds_in(stage) / images;
            text += &format!(", {} {seconds:.2}", <&str>::from(stage));
        }
        if self.refusals > 0 {
            text += &format!(
                "; {} refusals for {:.1} s, the last one: {}",
                self.refusals,
                self.refused_for.as_secs_f64(),
                self.last_refusal
            );
        }
        text
    }
}

/// State of a host before the attacks.
struct Idle {
    footprint: Footprint,
    cpu: CpuTimes,
    /// CPU time of the host itself in [`RATE_INTERVAL`].
    own: Uncharged,
}

impl Idle {
    async fn read(scene: &Scene) -> Result<Self> {
        let before = CpuTimes::read(scene)?;
        sleep(RATE_INTERVAL).await;
        let cpu = CpuTimes::read(scene)?;
        Ok(Self {
            footprint: Footprint::read(scene)?,
            own: cpu.uncharged_since(&before),
            cpu,
        })
    }
}

/// Tasks of a mixture, which end when `stop` is set.
struct Tasks {
    stop: watch::Sender<bool>,
    acting: JoinSet<Acts>,
    working: JoinSet<(usize, NeighborResults)>,
    watching: JoinSet<(usize, Result<MemoryPeak>)>,
}

/// Acts of a tenant.
#[derive(Debug, Default)]
struct Acts {
    completed: usize,
    tried: BTreeSet<String>,
}

/// Runs `cases` and floods.
///
/// # Errors
/// Returns an error if the scene itself fails.
pub async fn mixture(binary: &Path, cases: &[Case], settings: MixtureSettings) -> Result<MixtureReport> {
    let hostile = TENANTS + FLOODS.len() + usize::from(settings.slow_kernels);
    let scene = Scene::start_crowded(binary, hostile, BUDGET).await?;
    let neighbors = [
        Neighbor::start(&scene).await?,
        Neighbor::start(&scene.on(1)).await?,
    ];
    // Measured concurrently, because both hosts share one machine.
    let (first, second) = tokio::join!(rate_alone(&neighbors[0]), rate_alone(&neighbors[1]));
    let alone = [first?, second?];
    let (on_first, on_second) = (scene.on(0), scene.on(1));
    let (first, second) = tokio::join!(Idle::read(&on_first), Idle::read(&on_second));
    let idle = [first?, second?];
    let mut tasks = Tasks::start(&scene, cases, neighbors);
    sleep(settings.span).await;
    // This cannot fail, because all tasks still listen.
    let _ = tasks.stop.send(true);
    let mut mixed = MixtureReport {
        neighbor_ratio: f64::INFINITY,
        neighbor_slowest_span: f64::INFINITY,
        ..MixtureReport::default()
    };
    while let Some(acts) = tasks.acting.join_next().await {
        let acts = acts?;
        mixed.completed += acts.completed;
        mixed.tried.extend(acts.tried);
    }
    for (host, work) in tasks.working.join_all().await {
        let alone = alone.get(host).context("no such host")?;
        mixed.neighbor_worked(work, alone / (hostile + 1) as f64);
    }
    for (host, peak) in tasks.watching.join_all().await {
        let idle = idle.get(host).context("no such host")?;
        mixed.used_memory(&peak?, &idle.footprint);
    }
    mixed.left_over = left_over(&scene, &idle, settings.grace).await?;
    let mut uncharged = Uncharged::default();
    for (host, idle) in idle.iter().enumerate() {
        let of_host = CpuTimes::read(&scene.on(host))?.uncharged_since(&idle.cpu);
        uncharged.add(&of_host.without_idle(&idle.own));
    }
    mixed.uncharged_cpu_share = uncharged.share();
    mixed.uncharged_cpu = uncharged.to_string();
    mixed.leaks = scene.take_leaks()?;
    mixed.panics = scene.panics()?;
    Ok(mixed)
}

impl Tasks {
    /// Starts the hostile tenants, the neighbor on each host and a watch of each host. Hostile tenants run
    /// cases, floods and, if there is another one, slow kernels.
    fn start(scene: &Scene, cases: &[Case], neighbors: [Neighbor; 2]) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut tasks = Self {
            stop,
            acting: JoinSet::new(),
            working: JoinSet::new(),
            watching: JoinSet::new(),
        };
        let neighbor = scene.neighbor();
        for (number, actor) in scene.actors().enumerate() {
            let stopped = stopped.clone();
            if actor.name() == neighbor.name() {
                continue;
            }
            match number.checked_sub(TENANTS) {
                None => tasks
                    .acting
                    .spawn(run_cases(actor, cases.to_vec(), number, stopped)),
                Some(number) => match FLOODS.get(number) {
                    Some(flood) => tasks.acting.spawn(run_flood(actor, *flood, stopped)),
                    None => tasks.acting.spawn(run_slow_kernels(actor, stopped)),
                },
            };
        }
        for (host, neighbor) in neighbors.into_iter().enumerate() {
            let working = stopped.clone();
            tasks
                .working
                .spawn(async move { (host, work(neighbor, working).await) });
            let scene = scene.on(host);
            let stopped = stopped.clone();
            tasks
                .watching
                .spawn(async move { (host, Watch::run(&scene, stopped).await) });
        }
        tasks
    }
}

impl MixtureReport {
    fn used_memory(&mut self, peak: &MemoryPeak, idle: &Footprint) {
        let over = peak.held.max(peak.anonymous.unwrap_or(0)).saturating_sub(BUDGET);
        self.over_budget = self.over_budget.max(over);
        self.unowned_bytes = self.unowned_bytes.max(peak.beyond(idle));
    }

    /// Adds the results on a host at which the fair share is `fair` images per second.
    fn neighbor_worked(&mut self, work: NeighborResults, fair: f64) {
        let mean = work.spans.iter().map(Span::rate).sum::<f64>() / work.spans.len() as f64;
        // The mean is NaN if no interval was completed.
        self.neighbor_ratio = if mean.is_nan() {
            0.0
        } else {
            self.neighbor_ratio.min(mean / fair)
        };
        let slowest = work
            .spans
            .iter()
            .min_by(|one, other| one.rate().total_cmp(&other.rate()));
        if let Some(slowest) = slowest.filter(|span| span.rate() / fair < self.neighbor_slowest_span) {
            self.neighbor_slowest_span = slowest.rate() / fair;
            self.neighbor_slowest_waits = slowest.waits();
        }
        self.neighbor_began += work.began;
        self.neighbor_finished += work.began - work.failures.len();
        self.neighbor_failures.extend(work.failures);
    }
}

async fn rate_alone(neighbor: &Neighbor) -> Result<f64> {
    neighbor.rate(RATE_INTERVAL).await
}

/// Runs cases repeatedly. Each tenant starts with a different case. Results are not checked, because errors
/// may differ under load.
async fn run_cases(scene: Scene, cases: Vec<Case>, number: usize, mut stopped: Receiver<bool>) -> Acts {
    let mut acts = Acts::default();
    let first = number * cases.len() / TENANTS;
    let act = async {
        for case in cases.iter().cycle().skip(first) {
            if case.run(&scene).await.is_ok() {
                acts.completed += 1;
                acts.tried.insert(case.name.clone());
            }
        }
    };
    tokio::select! {
        () = act => {}
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
    acts
}

/// Runs a flood repeatedly. Counts the rounds.
async fn run_flood(scene: Scene, flood: Flood, mut stopped: Receiver<bool>) -> Acts {
    let mut acts = Acts::default();
    let act = async {
        loop {
            // Refusing a flood is correct.
            if flood(&scene, acts.completed).await.is_err() {
                sleep(REFUSED_PAUSE).await;
            }
            acts.completed += 1;
        }
    };
    tokio::select! {
        () = act => {}
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
    acts
}

/// Runs kernels that cannot be interrupted.
async fn run_slow_kernels(scene: Scene, mut stopped: Receiver<bool>) -> Acts {
    let act = async {
        loop {
            // The host may refuse the tenant for a while.
            let _ = keep_lanes(&scene).await;
            sleep(REFUSED_PAUSE).await;
        }
    };
    tokio::select! {
        () = act => {}
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
    Acts::default()
}

/// Extracts until stopped and records the rate of each interval.
async fn work(neighbor: Neighbor, stopped: Receiver<bool>) -> NeighborResults {
    let mut work = NeighborResults::default();
    while !*stopped.borrow() {
        let began = tokio::time::Instant::now();
        let mut span = Span::default();
        while began.elapsed() < RATE_INTERVAL && !*stopped.borrow() {
            work.began += 1;
            let refused = |error: &anyhow::Error, took: Duration| {
                span.refusals += 1;
                span.refused_for += took;
                span.last_refusal = format!("{error:#}");
            };
            match neighbor.check_with_retries(refused).await {
                Ok((rows, stages)) => {
                    span.images += rows;
                    span.stages += stages;
                }
                Err(error) => work.failures.push(format!("{error:#}")),
            }
        }
        span.took = began.elapsed();
        if span.took >= RATE_INTERVAL {
            work.spans.push(span);
        }
    }
    work
}

/// Returns what the hosts still hold for disconnected tenants, who have left `grace` before.
async fn left_over(scene: &Scene, idle: &[Idle; 2], grace: Duration) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for (host, idle) in idle.iter().enumerate() {
        let of_host = Footprint::left_over(&scene.on(host), &idle.footprint, grace).await?;
        left.extend(of_host.into_iter().map(|what| format!("host {host}: {what}")));
        for actor in scene.actors() {
            let released = wait_until_released(&actor.on(host)).await;
            left.extend(released.err().map(|error| format!("{}: {error}", actor.name())));
        }
    }
    Ok(left)
}
