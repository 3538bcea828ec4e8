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
    AttackKind, Case, MixtureReport, Neighbor, Scene, cases, compiled_guests, keep_lanes, memory_cases,
    mixture, row_cases, slow_cases,
};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Total number of hostile runs for the memory measurement.
const RUNS: usize = 1000;

/// Number of memory samples during these runs. Multiple samples distinguish a cache, which stops growing,
/// from a leak.
const PARTS: usize = 4;

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

const MIB: f64 = (1 << 20) as f64;

/// A contained case with the measured duration.
struct ContainedCase {
    case: Case,
    took: Duration,
}

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let scene = Scene::start(&binary()?, &[]).await?;
        let neighbor = Neighbor::start(&scene).await?;
        let ran = suite(report, &scene, &neighbor).await?;
        memory(report, &scene, &ran).await?;
        first_results(report, &neighbor).await?;
        neighbor_rates(report, &scene, &neighbor, &ran).await?;
        slow_kernels(report, &scene, &neighbor).await?;
        drop((neighbor, scene));
        run_mixture(report).await?;
        walls::run(report, &binary()?).await?;
        capacity::run(report).await
    })?;
    updates::run(report)
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
    for _ in 0..PARTS {
        for case in runs.by_ref().take(RUNS / PARTS) {
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

/// Runs all cases and floods at once, next to a neighbor whose extractions must finish with correct results.
async fn run_mixture(report: &mut Report) -> Result<()> {
    let span = if report.quick() { QUICK_MIXTURE } else { MIXTURE };
    let all = [
        cases(),
        compiled_guests(),
        memory_cases(),
        row_cases(),
        slow_cases(),
    ];
    let cases = all.concat();
    let mixed = mixture(&binary()?, &cases, span).await?;
    let MixtureReport {
        completed,
        leaks,
        panics,
        over_budget,
        neighbor_ratio,
        neighbor_slowest_span,
        neighbor_began,
        neighbor_finished,
        neighbor_failures,
        left_over,
    } = mixed;
    println!(
        "{completed} cases and floods in {:.1} min: the neighbor finished {neighbor_finished} of {neighbor_began} extractions at {neighbor_ratio:.2} of the fair share ({neighbor_slowest_span:.2} in the slowest ten seconds)",
        span.as_secs_f64() / 60.0
    );
    for trouble in neighbor_failures.iter().chain(&left_over) {
        println!("    {trouble}");
    }
    for (what, bytes) in &leaks {
        println!("    {bytes} bytes: {what}");
    }
    println!();
    report.set("foreign_bytes", leaks.values().sum::<u64>());
    report.set("mixture_minutes", span.as_secs_f64() / 60.0);
    report.set("mixture_panics", panics);
    report.set("mixture_over_budget_mib", over_budget as f64 / MIB);
    report.set("mixture_neighbour_ratio_min", neighbor_ratio);
    report.set("mixture_neighbour_slowest_span_ratio", neighbor_slowest_span);
    report.set("mixture_neighbour_finished", neighbor_finished == neighbor_began);
    report.set("mixture_left_over", left_over.len());
    Ok(())
}
