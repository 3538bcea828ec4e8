//! The full path, a host with its lanes in child processes, against a bare loop at its best batch; and lanes in child processes against
//! those in the program.

use crate::networks::Grid;
use crate::overhead::{Bare, Rig, Way};
use crate::report::{Report, geometric_mean, median};
use anyhow::Result;

/// Of small, middling and large activations; a quick run has the first.
const NETWORKS: [&str; 3] = ["resnet18", "resnet50", "densenet121"];

/// Batches of the bare loop, of which the best counts.
const BATCHES: [usize; 4] = [1, 4, 16, 32];

/// Photos of a round: seconds of a middling network on two cores.
const PHOTOS: usize = 192;

/// Rounds before those that count: sessions are opened and sizes of batches tried.
const WARM: usize = 2;

/// Rounds that count: on a shared machine the same turn comes out up to a tenth slower or faster, the median of so many pairs within some 2 %.
const ROUNDS: usize = 9;

/// What has a turn in each round, those that are compared side by side; `None` is the bare loop.
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

/// The full path over the bare loop, and lanes in child processes over those here: medians of what is measured in turns.
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
            "    bare loop at {best}: {alone:.1} images/s; host {serve:.1}; lanes in child processes {lanes:.1}, in process {here:.1}"
        );
        if round >= WARM {
            full.push(serve / alone);
            child.push(lanes / here);
        }
    }
    rig.end().await;
    Ok([median(&full), median(&child)])
}

/// Images a second in each turn of a round; every other round goes backwards, so that none gains by its place.
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

/// The batch with the best rate, of two turns the second.
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
