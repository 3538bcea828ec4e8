//! Measures tenant isolation: results of the isolation suite, memory growth after a thousand hostile runs,
//! the neighbor's rate with hostile tenants, effect and cost of walls, tenants per host, and admin updates on
//! hosts with shared state.

mod capacity;
mod updates;
mod walls;

use crate::report::{Report, median, quantile};
use crate::run::binary;
use anyhow::{Context, Result};
use frostline_isolation::{
    AttackKind, Case, MixtureReport, MixtureSettings, Neighbor, Scene, behavior_cases, cases,
    compiled_guests, keep_lanes, memory_cases, mixture, row_cases, slow_cases, unread_cases,
};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Total number of hostile runs for the memory measurement.
const RUNS: usize = 1000;

/// Number of memory samples during these runs. Multiple samples distinguish a cache, which stops growing,
/// from a leak.
const SAMPLES: usize = 4;

/// Maximum duration of a short case.
const SHORT: Duration = Duration::from_millis(150);

/// Duration and number of rate measurements.
const SPAN: Duration = Duration::from_secs(4);
const TURNS: usize = 3;

/// Duration of the measurement next to slow kernels. Long enough for the host to make the slow tenant wait
/// several times.
const SLOW: Duration = Duration::from_secs(60);

/// Guests and models that are new to the host.
const NEWCOMERS: usize = 9;

/// Fair share of the host for a neighbor next to one hostile tenant.
const FAIR: f64 = 0.5;

/// Duration of all cases at once.
const MIXTURE: Duration = Duration::from_secs(600);
const QUICK_MIXTURE: Duration = Duration::from_secs(30);

/// Duration of the mixture with kernels that cannot be interrupted. Long enough for the host to pause the
/// tenant several times.
const SLOW_MIXTURE: Duration = Duration::from_secs(180);

/// Time after which a host must hold nothing for clients that have left.
const GRACE: Duration = Duration::from_secs(15);

const MIB: f64 = (1 << 20) as f64;

/// A contained case with the measured duration.
struct ContainedCase {
    case: Case,
    took: Duration,
}

/// The parts of this benchmark.
pub(crate) const PARTS: [&str; 6] = ["cases", "mixture", "slow-mixture", "walls", "capacity", "updates"];

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        if report.has("cases") {
            run_cases(report).await?;
        }
        if report.has("mixture") {
            run_mixture(report).await?;
        }
        if report.has("slow-mixture") {
            run_slow_mixture(report).await?;
        }
        if report.has("walls") {
            walls::run(report, &binary()?).await?;
        }
        if report.has("capacity") {
            capacity::run(report).await?;
        }
        anyhow::Ok(())
    })?;
    if report.has("updates") {
        updates::run(report)?;
    }
    Ok(())
}

/// Runs the cases one after the other, and measures the memory and the neighbor's rate with them.
async fn run_cases(report: &mut Report) -> Result<()> {
    let scene = Scene::start(&binary()?, &[]).await?;
    let neighbor = Neighbor::start(&scene).await?;
    let ran = suite(report, &scene, &neighbor).await?;
    memory(report, &scene, &ran).await?;
    first_results(report, &neighbor).await?;
    neighbor_rates(report, &scene, &neighbor, &ran).await?;
    slow_kernels(report, &scene, &neighbor).await
}

/// Runs every case once and returns the contained ones.
async fn suite(report: &mut Report, scene: &Scene, neighbor: &Neighbor) -> Result<Vec<ContainedCase>> {
    println!(
        "{:<24} {:<8} {:<8} {:<10} {:>6}",
        "case", "expected", "seen", "neighbor", "s"
    );
    let (all, mut ran) = ([cases(), compiled_guests()].concat(), Vec::new());
    let behaviors = all.len();
    for case in all {
        let started = Instant::now();
        let (stop, stopped) = watch::channel(false);
        let (seen, beside) = tokio::join!(
            async {
                let seen = case.run(scene).await;
                // The receiver is dropped if the neighbor has failed.
                let _ = stop.send(true);
                (seen, started.elapsed())
            },
            neighbor.work(stopped)
        );
        let (seen, took) = seen;
        let code = seen.as_ref().map_or("-", |seen| seen.code.as_str());
        let right = if beside.is_ok() { "right" } else { "wrong" };
        println!(
            "{:<24} {:<8} {code:<8} {right:<10} {:>6.2}",
            case.name,
            case.expected.code,
            took.as_secs_f64()
        );
        let ended_well = seen.as_ref().is_ok_and(|seen| case.is_expected(seen));
        if !ended_well {
            println!("    expected {:?}, got {seen:?}", case.expected);
        }
        if let Err(error) = &beside {
            println!("    neighbor: {error:#}");
        }
        if ended_well && beside.is_ok() {
            ran.push(ContainedCase { case, took });
        }
    }
    println!("\n{} of {behaviors} contained\n", ran.len());
    report.set("behaviours", behaviors);
    report.set("contained", ran.len());
    Ok(ran)
}

/// Measures the host's memory before and after a thousand runs of the short cases.
async fn memory(report: &mut Report, scene: &Scene, ran: &[ContainedCase]) -> Result<()> {
    let short: Vec<&Case> = ran
        .iter()
        .filter(|ran| ran.took < SHORT)
        .map(|ran| &ran.case)
        .collect();
    let before = scene.memory()? as f64;
    let mut grown = Vec::new();
    let mut runs = short.iter().cycle();
    for _ in 0..SAMPLES {
        for case in runs.by_ref().take(RUNS / SAMPLES) {
            case.run(scene).await?;
        }
        grown.push((scene.memory()? as f64 - before) / MIB);
    }
    println!(
        "{RUNS} runs of {} short cases, initial memory {:.0} MiB, growth by quarter {grown:.1?} MiB",
        short.len(),
        before / MIB
    );
    let grown = grown.last().copied().context("no runs")?;
    let panics = scene.panics()?;
    println!("{panics} panics in the host's log\n");
    report.set("rss_growth_mib", grown);
    report.set("panics", panics);
    Ok(())
}

/// Measures the time from the upload of a new guest and model to the first activations.
async fn first_results(report: &mut Report, neighbor: &Neighbor) -> Result<()> {
    let mut seconds = Vec::new();
    for number in 0..NEWCOMERS {
        seconds.push(neighbor.time_to_first_activations(number).await?.as_secs_f64());
    }
    let first = median(&seconds);
    println!("new guest and model, from upload to first result: median of {NEWCOMERS} {first:.2} s\n");
    report.set("upload_to_first_result_seconds", first);
    Ok(())
}

/// Measures the neighbor's longest wait for an image while another tenant's slow kernels (seconds each) run
/// on all lanes.
async fn slow_kernels(report: &mut Report, scene: &Scene, neighbor: &Neighbor) -> Result<()> {
    let longest = tokio::select! {
        longest = neighbor.longest_extraction(SLOW) => longest?.as_secs_f64(),
        kept = keep_lanes(scene) => return kept.context("the slow tenant's extraction ended"),
    };
    println!("longest wait of the neighbor for an image next to slow kernels: {longest:.1} s\n");
    report.set("neighbour_wait_max_seconds", longest);
    Ok(())
}

/// Measures the neighbor's images per second with an idle tenant and with a tenant that repeats all cases in
/// a class.
async fn neighbor_rates(
    report: &mut Report,
    scene: &Scene,
    neighbor: &Neighbor,
    ran: &[ContainedCase],
) -> Result<()> {
    let classes = [
        AttackKind::Guest,
        AttackKind::Model,
        AttackKind::Image,
        AttackKind::Request,
    ];
    let turns = if report.quick() { 1 } else { TURNS };
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); classes.len() + 1];
    for _ in 0..turns {
        let alone = neighbor.rate(SPAN).await?;
        rates.first_mut().context("no rates")?.push(alone);
        for (class, rates) in classes.iter().zip(rates.iter_mut().skip(1)) {
            let of_class = || {
                ran.iter()
                    .filter(|ran| ran.case.class == *class && ran.took < Duration::from_secs(8))
            };
            let harm = async {
                for ran in of_class().cycle() {
                    ran.case.run(scene).await?;
                }
                anyhow::Ok(())
            };
            let rate = tokio::select! {
                rate = neighbor.rate(SPAN) => rate?,
                harmed = harm => { harmed?; continue }
            };
            rates.push(rate);
        }
    }
    let medians: Vec<f64> = rates.iter().map(|rates| median(rates)).collect();
    let alone = medians.first().copied().context("no rates")?;
    println!("neighbor next to an idle tenant: {alone:.1} images/s");
    let mut ratios = Vec::new();
    for (class, rate) in classes.iter().zip(medians.iter().skip(1)) {
        let ratio = rate / (alone * FAIR);
        report.set(&format!("neighbour_ratio_{class:?}").to_lowercase(), ratio);
        if rate.is_nan() {
            println!("neighbor next to hostile {class:?}s: skipped, no short case was contained");
            continue;
        }
        println!(
            "neighbor next to hostile {class:?}s: {rate:.1} images/s, {ratio:.2} of the fair share (half)"
        );
        ratios.push(ratio);
    }
    println!();
    report.set("neighbour_ratio_min", quantile(&ratios, 0.0));
    Ok(())
}

/// Runs all cases, behaviors and floods at once, next to a neighbor whose extractions must finish with correct
/// results.
async fn run_mixture(report: &mut Report) -> Result<()> {
    let settings = MixtureSettings {
        span: if report.quick() { QUICK_MIXTURE } else { MIXTURE },
        grace: GRACE,
        slow_kernels: false,
    };
    let cases = all_cases();
    let mixed = mixture(&binary()?, &cases, settings).await?;
    let minutes = settings.span.as_secs_f64() / 60.0;
    print_mixture(&mixed, minutes);
    let behaviors = behavior_cases();
    let is_tried = |case: &&Case| mixed.tried.contains(&case.name);
    let tried = behaviors.iter().filter(is_tried).count();
    println!(
        "{} of {} cases completed, {tried} of {} behaviors on routes; without an owner: up to {:.0} MiB, {:.1} % of the CPU time ({})\n",
        mixed.tried.len(),
        cases.len(),
        behaviors.len(),
        mixed.unowned_bytes as f64 / MIB,
        mixed.uncharged_cpu_share * 100.0,
        mixed.uncharged_cpu
    );
    report.set("foreign_bytes", mixed.leaks.values().sum::<u64>());
    report.set("mixture_minutes", minutes);
    report.set("mixture_cases", cases.len());
    report.set("mixture_acts", mixed.completed);
    report.set("route_behaviors", behaviors.len());
    report.set("route_behaviors_tried", tried);
    report.set("mixture_panics", mixed.panics);
    report.set("mixture_over_budget_mib", mixed.over_budget as f64 / MIB);
    report.set("unowned_bytes_max", mixed.unowned_bytes);
    report.set("uncharged_cpu_share", mixed.uncharged_cpu_share);
    report.set("mixture_neighbour_ratio_min", mixed.neighbor_ratio);
    report.set(
        "mixture_neighbour_slowest_span_ratio",
        mixed.neighbor_slowest_span,
    );
    report.set(
        "mixture_neighbour_finished",
        mixed.neighbor_finished == mixed.neighbor_began,
    );
    report.set("mixture_left_over", mixed.left_over.len());
    Ok(())
}

/// Runs the mixture with an additional tenant whose kernels cannot be interrupted.
async fn run_slow_mixture(report: &mut Report) -> Result<()> {
    let settings = MixtureSettings {
        span: if report.quick() {
            QUICK_MIXTURE
        } else {
            SLOW_MIXTURE
        },
        grace: GRACE,
        slow_kernels: true,
    };
    let cases = [all_cases(), slow_cases()].concat();
    let mixed = mixture(&binary()?, &cases, settings).await?;
    println!("with kernels that cannot be interrupted:");
    print_mixture(&mixed, settings.span.as_secs_f64() / 60.0);
    report.set(
        "mixture_neighbour_slowest_span_ratio_slow_kernels",
        mixed.neighbor_slowest_span,
    );
    report.set("foreign_bytes_slow_kernels", mixed.leaks.values().sum::<u64>());
    report.set("mixture_left_over_slow_kernels", mixed.left_over.len());
    Ok(())
}

fn all_cases() -> Vec<Case> {
    [
        cases(),
        compiled_guests(),
        memory_cases(),
        row_cases(),
        unread_cases(),
        behavior_cases(),
    ]
    .concat()
}

fn print_mixture(mixed: &MixtureReport, minutes: f64) {
    println!(
        "{} cases and floods in {minutes:.1} min: the neighbor finished {} of {} extractions at {:.2} of the fair share ({:.2} in the slowest ten seconds)",
        mixed.completed,
        mixed.neighbor_finished,
        mixed.neighbor_began,
        mixed.neighbor_ratio,
        mixed.neighbor_slowest_span
    );
    println!(
        "    the slowest ten seconds, with the mean seconds of an image in each stage: {}",
        mixed.neighbor_slowest_waits
    );
    for trouble in mixed.neighbor_failures.iter().chain(&mixed.left_over) {
        println!("    {trouble}");
    }
    for (what, bytes) in &mixed.leaks {
        println!("    {bytes} bytes: {what}");
    }
    println!();
}
