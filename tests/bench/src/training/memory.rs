//! Measures the memory of a training step. The same rule applies to both sides: each runs [`STEPS`] steps in
//! a separate process, which has loaded the libraries and run a small network before it loads the suffix. The
//! result is the peak of anonymous memory during the steps minus the anonymous memory before the suffix was
//! loaded. It includes weights, gradients, momentum, batch, activations and memory retained by allocators,
//! but not code and libraries.

use super::ours::Ours;
use crate::proc_status::own_bytes;
use crate::run::last_object;
use anyhow::{Context, Result};
use frostline_engine::{Session, SessionOptions};
use frostline_graph::Model;
use frostline_graph::build::{self, Axis};
use frostline_graph::onnx::{GraphProto, data_type};
use std::path::Path;
use std::process::Command;

/// The second step arranges memory based on the first one; later steps only fragment it.
const STEPS: usize = 5;

/// MB of a training step with the suffix in `file`, measured in a child process.
pub(super) fn in_child(file: &Path, dims: &[usize]) -> Result<f64> {
    let dims: Vec<String> = dims.iter().map(usize::to_string).collect();
    let mut step = Command::new(std::env::current_exe()?);
    step.args(["training", "--dims", &dims.join(","), "--step"]);
    let megabytes = last_object(step.arg(file))?;
    serde_json::from_value(megabytes).context("unexpected output of the step")
}

/// Like [`in_child`], in this process.
pub(super) fn measure(file: &Path, dims: &[usize]) -> Result<f64> {
    drop(Session::open(
        &smallest()?.to_bytes()?,
        &SessionOptions::default(),
    )?);
    let before = field("RssAnon")?;
    let model = Model::read(file)?;
    let mut ours = Ours::open(&model, dims)?;
    drop(model);
    std::fs::write("/proc/self/clear_refs", "5").context("cannot reset the peak of this process' memory")?;
    ours.losses(STEPS)?;
    Ok(field("VmHWM")? - field("RssFile")? - before)
}

/// Field of this process's status in MB.
fn field(name: &str) -> Result<f64> {
    Ok(own_bytes(name)? as f64 / 1e6)
}

/// A network with a single Relu.
fn smallest() -> Result<Model> {
    let tensor = |name| build::value(name, data_type::FLOAT, &[Axis::Fixed(1)]);
    Ok(Model::from_proto(build::model(
        17,
        GraphProto {
            name: "smallest".into(),
            node: vec![build::node("Relu", &["x"], &["y"])],
            input: vec![tensor("x")],
            output: vec![tensor("y")],
            ..Default::default()
        },
    ))?)
}
