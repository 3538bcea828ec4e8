//! Step time of ResNet18's last block against PyTorch on the same two threads, in turns.

use crate::report::{Report, median};
use crate::run::{json_lines, text};
use anyhow::{Context, Result, bail};
use frostline_engine::{ResidentSlot, ResidentState, Session, SessionOptions};
use frostline_graph::Model;
use frostline_graph::build::{Axis, batched, initializer, int, ints, model, node, value};
use frostline_graph::onnx::{GraphProto, NodeProto, TensorProto, data_type};
use frostline_tensor::Tensor;
use frostline_training::{Optimizer, TrainingGraph};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const THREADS: usize = 2;
const CLASSES: usize = 1000;
const CHANNELS: usize = 512;
const LEARNING_RATE: f32 = 0.001;
pub(crate) const OPTIMIZER: Optimizer = Optimizer::Sgd {
    momentum: 0.9,
    nesterov: false,
    weight_decay: 0.0,
};

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let python = torch(&[])?;
    let (rounds, steps) = if report.quick() { (3, 10) } else { (7, 30) };
    println!(
        "ResNet18 after layer4.0: forward, backward, SGD with momentum; {THREADS} threads, {rounds} rounds of {steps} steps"
    );
    println!(
        "{:<8} {:>16} {:>16} {:>10}",
        "batch", "Frostline ms", "PyTorch ms", "ratio"
    );
    for batch in [8, 32] {
        let mut ours = Ours::open(batch)?;
        let (mut our_times, mut their_times, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let our = ours.median_ms(steps)?;
            let their = pytorch(&python, batch, steps)?;
            our_times.push(our);
            their_times.push(their);
            ratios.push(our / their);
        }
        let ratio = median(&ratios);
        println!(
            "{batch:<8} {:>16.1} {:>16.1} {ratio:>10.2}",
            median(&our_times),
            median(&their_times)
        );
        report.set(&format!("frostline_ms_b{batch}"), median(&our_times));
        report.set(&format!("pytorch_ms_b{batch}"), median(&their_times));
        report.set(&format!("ratio_vs_pytorch_b{batch}"), ratio);
    }
    Ok(())
}

/// The training step of the block, with its weights in the engine.
struct Ours {
    session: Session,
    state: ResidentState,
    graph: TrainingGraph,
    activations: Tensor,
    labels: Tensor,
}

impl Ours {
    fn open(batch: usize) -> Result<Self> {
        let graph = TrainingGraph::build(&last_block()?, batch, OPTIMIZER)?;
        let options = SessionOptions {
            threads: THREADS,
            ..SessionOptions::default()
        };
        let session = Session::open(&graph.model.to_bytes()?, &options)?;
        let slots = graph.state.iter().map(|slot| ResidentSlot {
            input: slot.input.clone(),
            output: slot.output.clone(),
            initial: slot.initial.clone(),
        });
        let state = ResidentState::new(slots)?;
        let activations = noise(&[batch, CHANNELS, 7, 7], 1.0, 1)?;
        let labels = Tensor::i64(
            [batch],
            (0..batch as i64).map(|row| row * 31 % CLASSES as i64).collect(),
        )?;
        Ok(Self {
            session,
            state,
            graph,
            activations,
            labels,
        })
    }

    fn median_ms(&mut self, steps: usize) -> Result<f64> {
        let rate = Tensor::f32([], vec![LEARNING_RATE])?;
        let mut times = Vec::new();
        for step in 0..steps + 3 {
            let started = Instant::now();
            let inputs = [
                (self.graph.input.as_str(), &self.activations),
                (self.graph.targets.as_str(), &self.labels),
                (self.graph.scalars.learning_rate.as_str(), &rate),
            ];
            self.session.step(&mut self.state, &inputs, &[&self.graph.loss])?;
            if step >= 3 {
                times.push(started.elapsed().as_secs_f64() * 1000.0);
            }
        }
        Ok(median(&times))
    }
}

/// Two 3x3 convolutions with the residual around them, global average pool, classifier: BatchNorm is folded, as eval exports do.
fn last_block() -> Result<Model> {
    let conv = |inputs: &[&str], output: &str| -> NodeProto {
        node("Conv", inputs, &[output]).with([ints("kernel_shape", &[3, 3]), ints("pads", &[1, 1, 1, 1])])
    };
    let nodes = vec![
        conv(&["x", "conv1.weight", "conv1.bias"], "conv1"),
        node("Relu", &["conv1"], &["relu1"]),
        conv(&["relu1", "conv2.weight", "conv2.bias"], "conv2"),
        node("Add", &["conv2", "x"], &["sum"]),
        node("Relu", &["sum"], &["relu2"]),
        node("GlobalAveragePool", &["relu2"], &["pooled"]),
        node("Flatten", &["pooled"], &["features"]),
        node("Gemm", &["features", "fc.weight", "fc.bias"], &["logits"]).with([int("transB", 1)]),
    ];
    let weights: Vec<TensorProto> = vec![
        initializer("conv1.weight", &noise(&[CHANNELS, CHANNELS, 3, 3], 0.02, 2)?),
        initializer("conv1.bias", &noise(&[CHANNELS], 0.02, 3)?),
        initializer("conv2.weight", &noise(&[CHANNELS, CHANNELS, 3, 3], 0.02, 4)?),
        initializer("conv2.bias", &noise(&[CHANNELS], 0.02, 5)?),
        initializer("fc.weight", &noise(&[CLASSES, CHANNELS], 0.04, 6)?),
        initializer("fc.bias", &noise(&[CLASSES], 0.04, 7)?),
    ];
    let logits = value("logits", data_type::FLOAT, &[Axis::batch(), Axis::Fixed(CLASSES)]);
    let graph = GraphProto {
        name: "last_block".to_owned(),
        node: nodes,
        initializer: weights,
        input: vec![batched("x", &[CHANNELS, 7, 7])],
        output: vec![logits],
        ..GraphProto::default()
    };
    Ok(Model::from_proto(model(17, graph))?)
}

/// Deterministic values in -scale..scale; their distribution does not matter for time.
fn noise(dims: &[usize], scale: f32, seed: u64) -> Result<Tensor> {
    let count = dims.iter().product();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    };
    let values = std::iter::repeat_with(|| next() * scale).take(count).collect();
    Ok(Tensor::f32(dims.to_vec(), values)?)
}

/// The interpreter of an environment with PyTorch, made on the first call.
pub(crate) fn torch(extras: &[&str]) -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/setup_torch.py");
    let output = Command::new("python3")
        .arg(script)
        .args(extras)
        .stderr(std::process::Stdio::inherit())
        .output()?;
    if !output.status.success() {
        bail!("PyTorch could not be set up; its own words are above");
    }
    let printed = String::from_utf8(output.stdout)?;
    printed
        .lines()
        .last()
        .map(PathBuf::from)
        .context("setup_torch.py printed no path")
}

fn pytorch(python: &Path, batch: usize, steps: usize) -> Result<f64> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/resnet18_last_block.py");
    let printed = json_lines(Command::new(python).arg(text(&script)?).args([
        "--batch",
        &batch.to_string(),
        "--threads",
        &THREADS.to_string(),
        "--steps",
        &steps.to_string(),
    ]))?;
    let last = printed.last().context("the PyTorch peer printed nothing")?;
    last.get("median_ms")
        .and_then(serde_json::Value::as_f64)
        .context("the PyTorch peer printed no median_ms")
}
