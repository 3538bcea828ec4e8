//! Training steps of the ends of usual networks against PyTorch on the same two threads, in turns.

mod memory;
mod ours;
mod peer;

use crate::report::{Report, folder, geometric_mean, median};
use anyhow::{Context, Result};
use frostline_graph::Model;
use frostline_training::Optimizer;
use ours::Ours;
use peer::Peer;
use std::path::Path;

pub(crate) use peer::torch;

const THREADS: usize = 2;
const CLASSES: usize = 1000;
/// Small enough that the losses of random weights fall evenly.
const LEARNING_RATE: f32 = 0.0001;
pub(crate) const OPTIMIZER: Optimizer = Optimizer::Sgd {
    momentum: 0.9,
    nesterov: false,
    weight_decay: 0.0,
};

/// What `peers/training_step.py` knows: the ends behind the paper's cuts, those one block earlier, last blocks, and one
/// network as a whole.
pub(crate) const SUFFIXES: [&str; 15] = [
    "alexnet",
    "alexnet_earlier",
    "vgg11",
    "vgg11_earlier",
    "resnet18",
    "resnet18_earlier",
    "resnet50",
    "resnet50_earlier",
    "densenet121",
    "densenet121_earlier",
    "vit_b_16",
    "vit_b_16_earlier",
    "mobilenet_v3",
    "convnext_tiny",
    "squeezenet1_1",
];
const QUICK: &[&str] = &["resnet18", "resnet50_earlier", "vit_b_16_earlier", "mobilenet_v3"];
const BATCHES: &[usize] = &[8, 32, 128];
const QUICK_BATCHES: &[usize] = &[8, 32];
/// A network as a whole: a batch of 128 takes several GB on both sides.
const WHOLE: &str = "squeezenet1_1";
/// The suffix of `ratio_vs_pytorch_b8` and `ratio_vs_pytorch_b32`.
const FIRST_KNOWN: &str = "resnet18";
/// Steps over which losses are compared, of the smallest batch.
const AGREEING_STEPS: usize = 50;
/// A turn takes as many steps as fit into this, at least [`FEWEST_STEPS`] and at most [`MOST_STEPS`].
const TURN_MS: f64 = 500.0;
const FEWEST_STEPS: usize = 2;
const MOST_STEPS: usize = 30;
const ROUNDS: usize = 5;
const QUICK_ROUNDS: usize = 3;

pub(crate) fn run(report: &mut Report) -> Result<()> {
    if let Some((file, dims)) = report.step() {
        println!("{}", memory::measure(file, dims)?);
        std::process::exit(0);
    }
    let python = torch(&["--vision"])?;
    let quick = report.quick();
    let suffixes = match report.suffixes() {
        [] if quick => QUICK.iter().map(|name| (*name).to_owned()).collect(),
        [] => SUFFIXES.iter().map(|name| (*name).to_owned()).collect(),
        named => named.to_vec(),
    };
    println!("forward, backward, SGD with momentum; {THREADS} threads");
    println!(
        "{:<22} {:>5} {:>13} {:>11} {:>6} {:>13} {:>11} {:>6}",
        "suffix", "batch", "Frostline ms", "PyTorch ms", "ratio", "Frostline MB", "PyTorch MB", "ratio"
    );
    let (mut ratios, mut memories, mut agreements) = (Vec::new(), Vec::new(), Vec::new());
    for suffix in &suffixes {
        let batches = match quick || suffix == WHOLE {
            true => QUICK_BATCHES,
            false => BATCHES,
        };
        for batch in batches {
            let cell = Cell::measure(&python, suffix, *batch, quick, BATCHES.first() == Some(batch))
                .with_context(|| format!("measuring {suffix} in batches of {batch}"))?;
            cell.report(report, suffix, *batch);
            ratios.push(cell.ratio);
            memories.push(cell.our_mb / cell.their_mb);
            agreements.extend(cell.disagreement);
        }
    }
    report.set("ratio_vs_pytorch_geomean", geometric_mean(&ratios));
    report.set("ratio_vs_pytorch_max", largest(&ratios));
    report.set("memory_ratio_vs_pytorch_geomean", geometric_mean(&memories));
    report.set("memory_ratio_vs_pytorch_max", largest(&memories));
    report.set("agreement_50_steps_max", largest(&agreements));
    println!(
        "\ntime: geometric mean {:.3}, worst {:.2}; memory: {:.3}, {:.2}; losses of {AGREEING_STEPS} steps differ by {:.1e} at most",
        geometric_mean(&ratios),
        largest(&ratios),
        geometric_mean(&memories),
        largest(&memories),
        largest(&agreements)
    );
    Ok(())
}

fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// One suffix at one batch.
struct Cell {
    our_ms: f64,
    their_ms: f64,
    ratio: f64,
    our_mb: f64,
    their_mb: f64,
    /// The largest difference of losses, as a part of PyTorch's.
    disagreement: Option<f64>,
    layout: String,
}

impl Cell {
    fn measure(python: &Path, suffix: &str, batch: usize, quick: bool, compare: bool) -> Result<Self> {
        let file = folder()?.join("training-suffix.onnx");
        let mut peer = Peer::start(python, suffix, batch, &file)?;
        let model = Model::read(&file)?;
        let our_mb = memory::in_child(&file, peer.dims())?;
        let their_mb = peer.memory()?;
        std::fs::remove_file(&file)?;
        let mut ours = Ours::open(&model, peer.dims())?;
        drop(model);
        let disagreement = compare.then(|| disagreement(&mut ours, &mut peer)).transpose()?;
        let (mut our_times, mut their_times, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let step = median(&ours.times(FEWEST_STEPS)?);
        let steps = ((TURN_MS / step) as usize).clamp(FEWEST_STEPS, MOST_STEPS);
        for _ in 0..if quick { QUICK_ROUNDS } else { ROUNDS } {
            // The first of a turn finds caches and threads as the other side left them.
            let our = median(ours.times(steps + 1)?.get(1..).unwrap_or_default());
            let their = median(peer.times(steps + 1)?.get(1..).unwrap_or_default());
            our_times.push(our);
            their_times.push(their);
            ratios.push(our / their);
        }
        Ok(Self {
            our_ms: median(&our_times),
            their_ms: median(&their_times),
            ratio: median(&ratios),
            our_mb,
            their_mb,
            disagreement,
            layout: peer.layout().to_owned(),
        })
    }

    fn report(&self, report: &mut Report, suffix: &str, batch: usize) {
        println!(
            "{suffix:<22} {batch:>5} {:>13.1} {:>11.1} {:>6.2} {:>13.0} {:>11.0} {:>6.2}   {}{}",
            self.our_ms,
            self.their_ms,
            self.ratio,
            self.our_mb,
            self.their_mb,
            self.our_mb / self.their_mb,
            self.layout,
            self.disagreement
                .map(|difference| format!(", losses differ by {difference:.1e}"))
                .unwrap_or_default()
        );
        report.set(&format!("{suffix}_b{batch}_ms"), self.our_ms);
        report.set(&format!("{suffix}_b{batch}_pytorch_ms"), self.their_ms);
        report.set(&format!("{suffix}_b{batch}_ratio"), self.ratio);
        report.set(&format!("{suffix}_b{batch}_mb"), self.our_mb);
        report.set(&format!("{suffix}_b{batch}_pytorch_mb"), self.their_mb);
        if suffix == FIRST_KNOWN {
            report.set(&format!("ratio_vs_pytorch_b{batch}"), self.ratio);
        }
    }
}

/// How far apart the losses of the first steps are at most, as a part of PyTorch's.
fn disagreement(ours: &mut Ours, peer: &mut Peer) -> Result<f64> {
    let (our, their) = (ours.losses(AGREEING_STEPS)?, peer.losses(AGREEING_STEPS)?);
    let apart = our
        .iter()
        .zip(&their)
        .map(|(our, their)| (our - their).abs() / their);
    Ok(largest(&apart.collect::<Vec<f64>>()))
}
