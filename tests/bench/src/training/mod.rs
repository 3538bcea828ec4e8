//! Training steps of common networks' suffixes, compared with PyTorch on the same two threads, in turns.

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

/// Parts that can run separately. Other load on the machine affects times but not memory.
pub(crate) const PARTS: [&str; 2] = ["memory", "times"];

const THREADS: usize = 2;
const CLASSES: usize = 1000;
/// Small enough that the losses of random weights decrease evenly.
const LEARNING_RATE: f32 = 0.0001;
pub(crate) const OPTIMIZER: Optimizer = Optimizer::Sgd {
    momentum: 0.9,
    nesterov: false,
    weight_decay: 0.0,
};

/// Suffixes that `peers/training_step.py` supports: layers after the paper's freeze cuts, with an additional
/// block (`_earlier`), last blocks, or the complete network.
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
/// A complete network. Batches of 128 would need gigabytes of memory on both sides.
const WHOLE: &str = "squeezenet1_1";
/// The suffix of `ratio_vs_pytorch_b8` and `ratio_vs_pytorch_b32`.
const FIRST_KNOWN: &str = "resnet18";
/// Number of steps for comparing losses. Uses the smallest batch.
const AGREEING_STEPS: usize = 50;
/// Duration of a turn. The number of steps is limited to [`FEWEST_STEPS`] to [`MOST_STEPS`].
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
        "suffix", "batch", "Frostline MB", "PyTorch MB", "ratio", "Frostline ms", "PyTorch ms", "ratio"
    );
    let mut cells = Vec::new();
    for suffix in &suffixes {
        let batches = match quick || suffix == WHOLE {
            true => QUICK_BATCHES,
            false => BATCHES,
        };
        for batch in batches {
            let cell = Cell::measure(report, &python, suffix, *batch)
                .with_context(|| format!("measuring {suffix} in batches of {batch}"))?;
            cell.report(report, suffix, *batch);
            cells.push(cell);
        }
    }
    summarize(report, &cells);
    Ok(())
}

fn summarize(report: &mut Report, cells: &[Cell]) {
    println!();
    if report.has("memory") {
        let ratios: Vec<f64> = cells.iter().filter_map(|cell| cell.memory).map(ratio).collect();
        let (mean, worst) = (geometric_mean(&ratios), largest(&ratios));
        report.set("memory_ratio_vs_pytorch_geomean", mean);
        report.set("memory_ratio_vs_pytorch_max", worst);
        println!("memory: geometric mean {mean:.3}, worst {worst:.2}");
    }
    if report.has("times") {
        let times = || cells.iter().filter_map(|cell| cell.times.as_ref());
        let ratios: Vec<f64> = times().map(|times| times.ratio).collect();
        let (mean, worst) = (geometric_mean(&ratios), largest(&ratios));
        let agreements: Vec<f64> = times().filter_map(|times| times.disagreement).collect();
        let apart = largest(&agreements);
        report.set("ratio_vs_pytorch_geomean", mean);
        report.set("ratio_vs_pytorch_max", worst);
        report.set("agreement_50_steps_max", apart);
        println!(
            "time: geometric mean {mean:.3}, worst {worst:.2}; largest difference of losses in {AGREEING_STEPS} steps {apart:.1e}"
        );
    }
}

fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// Frostline's value over PyTorch's.
fn ratio([our, their]: [f64; 2]) -> f64 {
    our / their
}

/// Measurements for one suffix and batch size.
struct Cell {
    /// MB of Frostline and PyTorch.
    memory: Option<[f64; 2]>,
    times: Option<Times>,
    layout: String,
}

struct Times {
    /// Milliseconds of Frostline and PyTorch.
    medians: [f64; 2],
    ratio: f64,
    /// Largest difference of losses, relative to PyTorch's.
    disagreement: Option<f64>,
}

impl Cell {
    fn measure(report: &Report, python: &Path, suffix: &str, batch: usize) -> Result<Self> {
        let file = folder()?.join("training-suffix.onnx");
        let mut peer = Peer::start(python, suffix, batch, &file)?;
        let mut memory = None;
        if report.has("memory") {
            memory = Some([memory::in_child(&file, peer.dims())?, peer.memory()?]);
        }
        let mut times = None;
        if report.has("times") {
            let ours = Ours::open(&Model::read(&file)?, peer.dims())?;
            let compare = BATCHES.first() == Some(&batch);
            times = Some(Times::measure(ours, &mut peer, report.quick(), compare)?);
        }
        std::fs::remove_file(&file)?;
        Ok(Self {
            memory,
            times,
            layout: peer.layout().to_owned(),
        })
    }

    fn report(&self, report: &mut Report, suffix: &str, batch: usize) {
        let key = |figure: &str| format!("{suffix}_b{batch}_{figure}");
        print!("{suffix:<22} {batch:>5}");
        match self.memory {
            Some([our_mb, their_mb]) => {
                report.set(&key("mb"), our_mb);
                report.set(&key("pytorch_mb"), their_mb);
                print!(" {our_mb:>13.0} {their_mb:>11.0} {:>6.2}", our_mb / their_mb);
            }
            None => print!(" {:>13} {:>11} {:>6}", "", "", ""),
        }
        if let Some(times) = &self.times {
            let [our_ms, their_ms] = times.medians;
            report.set(&key("ms"), our_ms);
            report.set(&key("pytorch_ms"), their_ms);
            report.set(&key("ratio"), times.ratio);
            if suffix == FIRST_KNOWN {
                report.set(&format!("ratio_vs_pytorch_b{batch}"), times.ratio);
            }
            print!(" {our_ms:>13.1} {their_ms:>11.1} {:>6.2}", times.ratio);
            if let Some(difference) = times.disagreement {
                print!(", losses differ by {difference:.1e}");
            }
        }
        println!("   {}", self.layout);
    }
}

impl Times {
    fn measure(mut ours: Ours, peer: &mut Peer, quick: bool, compare: bool) -> Result<Self> {
        let disagreement = compare.then(|| disagreement(&mut ours, peer)).transpose()?;
        let (mut our_times, mut their_times, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let step = median(&ours.times(FEWEST_STEPS)?);
        let steps = ((TURN_MS / step) as usize).clamp(FEWEST_STEPS, MOST_STEPS);
        for _ in 0..if quick { QUICK_ROUNDS } else { ROUNDS } {
            // The first step of a turn is slower because the other side has used caches and threads.
            let our = median(ours.times(steps + 1)?.get(1..).unwrap_or_default());
            let their = median(peer.times(steps + 1)?.get(1..).unwrap_or_default());
            our_times.push(our);
            their_times.push(their);
            ratios.push(our / their);
        }
        Ok(Self {
            medians: [median(&our_times), median(&their_times)],
            ratio: median(&ratios),
            disagreement,
        })
    }
}

/// Largest difference of losses in the first steps, relative to PyTorch's.
fn disagreement(ours: &mut Ours, peer: &mut Peer) -> Result<f64> {
    let (our, their) = (ours.losses(AGREEING_STEPS)?, peer.losses(AGREEING_STEPS)?);
    let apart = our
        .iter()
        .zip(&their)
        .map(|(our, their)| (our - their).abs() / their);
    Ok(largest(&apart.collect::<Vec<f64>>()))
}
