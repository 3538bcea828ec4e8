//! Compares the full path, a host with lanes in child processes, with a bare loop in the best batch size; and
//! lanes in child processes with lanes in this process.

use crate::networks::Grid;
use crate::overhead::{Bare, Rig, Way};
use crate::report::{Report, geometric_mean, median};
use anyhow::Result;

/// Networks with small, medium and large activations. Quick runs use the first.
const NETWORKS: [&str; 3] = ["resnet18", "resnet50", "densenet121"];

/// Batch sizes of the bare loop. Only the best rate is used.
const BATCHES: [usize; 4] = [1, 4, 16, 32];

/// Photos per round: seconds of work for a medium network on two cores.
const PHOTOS: usize = 192;

/// Warm-up rounds, in which sessions are opened and batch sizes are tried.
const WARM: usize = 2;

/// Counted rounds. Repetitions on a shared machine differ by up to 10 %, medians of nine pairs by about 2 %.
const ROUNDS: usize = 9;

/// Turns in a round. Compared turns are adjacent. `None` is the bare loop.
const TURNS: [Option<Way>; 4] = [None, Some(Way::Serve), Some(Way::Child), Some(Way::Direct)];

pub(super) async fn run(report: &mut Report) -> Result<()> {
    let count = if report.quick() { 1 } else { NETWORKS.len() };
    let mut ratios = [Vec::new(), Vec::new()];
    for name in NETWORKS.iter().take(count) {
        let [full, child] = measure(report, name).await?;
        report.set(&format!("{name}_ratio_vs_bare_loop"), full);
        for (ratios, ratio) in ratios.iter_mut().zip([full, child]) {
            ratios.push(ratio);
        }
    }
    let [full, child] = ratios.map(|ratios| geometric_mean(&ratios));
    println!(
        "the full path reaches {full:.3} of the bare loop's rate; lanes in child processes {child:.3} of lanes in process\n"
    );
    report.set("ratio_vs_bare_loop", full);
    report.set("ratio_child_vs_inprocess", child);
    Ok(())
}

/// Returns two median ratios: the full path relative to the bare loop, and lanes in child processes relative
/// to lanes in this process.
async fn measure(report: &Report, name: &str) -> Result<[f64; 2]> {
    let freeze = Grid::read()?.network(name)?.freeze.clone();
    let mut rig = Rig::start(name, &freeze, &report.photos()).await?;
    rig.use_photos(PHOTOS);
    let mut bare = rig.bare()?;
    println!("{}", rig.describe());
    let best = best(&mut bare)?;
    let (mut full, mut child) = (Vec::new(), Vec::new());
    for round in 0..WARM + ROUNDS {
        let [alone, serve, lanes, here] = turns(&rig, &mut bare, best, round % 2 == 1).await?;
        println!(
            "    bare loop with batches of {best} {alone:.1} images/s, host {serve:.1}, lanes in child processes {lanes:.1}, in process {here:.1}"
        );
        if round >= WARM {
            full.push(serve / alone);
            child.push(lanes / here);
        }
    }
    rig.end().await;
    Ok([median(&full), median(&child)])
}

/// Returns the images per second of each turn. Rounds alternate between forward and reverse order.
async fn turns(rig: &Rig, bare: &mut Bare, best: usize, backwards: bool) -> Result<[f64; TURNS.len()]> {
    let mut rates = [f64::NAN; TURNS.len()];
    let mut turns: Vec<_> = TURNS.iter().zip(&mut rates).collect();
    if backwards {
        turns.reverse();
    }
    for (way, rate) in turns {
        *rate = match way {
            Some(way) => rig.rate(*way).await?,
            None => tokio::task::block_in_place(|| bare.rate(best))?,
        };
    }
    Ok(rates)
}

/// Returns the batch size with the best rate. Each size is measured twice.
fn best(bare: &mut Bare) -> Result<usize> {
    let mut best = (0.0, 1);
    for batch in [BATCHES, BATCHES].concat() {
        let rate = tokio::task::block_in_place(|| bare.rate(batch))?;
        if rate > best.0 {
            best = (rate, batch);
        }
    }
    Ok(best.1)
}
