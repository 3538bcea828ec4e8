//! Which way of convolving is the faster one on this machine: measured once, then known.

use super::step::{open, resident, training};
use crate::TrainerError;
use frostline_engine::{Device, Interrupt, ResidentState, SessionOptions, library_version};
use frostline_graph::Model;
use frostline_profile::{Folder, machine};
use frostline_tensor::Tensor;
use frostline_training::{TrainingError, TrainingGraph, faster_by_winograd};
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Instant;

/// Steps of which the fastest counts; one more comes before them.
const STEPS: usize = 3;

/// What such a choice is stored under; it does not depend on weights.
const SUBJECT: &str = "winograd";

/// What a choice depends on.
#[derive(Serialize)]
struct Key {
    machine: String,
    library: String,
    device: String,
    threads: usize,
    batch: usize,
    /// Names and shapes.
    weights: Vec<(String, Vec<i64>)>,
}

/// The weights of `suffix` that are convolved [by Winograd's way](frostline_training::StepSettings::winograd): as `known` has it, else
/// measured and stored there, so that the next job computes alike.
pub(super) fn winograd(
    suffix: &Model,
    batch: usize,
    options: &SessionOptions,
    known: Option<&Folder>,
    interrupt: &Interrupt,
) -> Result<BTreeSet<String>, TrainingError> {
    let key = Key::of(suffix, batch, options);
    if let Some(stored) = known.and_then(|folder| folder.get(SUBJECT, &key)) {
        return Ok(stored);
    }
    let mut all_ran = true;
    let measured = faster_by_winograd(suffix, batch, |graph, dims| {
        let took = seconds(graph, dims, options, interrupt);
        all_ran &= took.is_ok();
        took.unwrap_or(f64::INFINITY)
    })?;
    if let Some(folder) = known.filter(|_| all_ran) {
        // Without it, the next job measures again.
        let _ = folder.put(SUBJECT, &key, &measured);
    }
    Ok(measured)
}

impl Key {
    fn of(suffix: &Model, batch: usize, options: &SessionOptions) -> Self {
        let gpu = match options.device {
            Device::Cpu => None,
            Device::Cuda(index) => Some(index),
        };
        let parameters = suffix.parameters();
        Self {
            machine: machine(gpu),
            library: library_version().unwrap_or_default(),
            device: options.device.to_string(),
            threads: options.threads.max(1),
            batch,
            weights: parameters
                .iter()
                .map(|weight| (weight.name.clone(), weight.dims.clone()))
                .collect(),
        }
    }
}

/// What a step of `graph` takes.
fn seconds(
    graph: &TrainingGraph,
    dims: &[usize],
    options: &SessionOptions,
    interrupt: &Interrupt,
) -> Result<f64, TrainerError> {
    let mut session = open(graph, options, interrupt)?;
    let mut state = ResidentState::new(resident(&graph.state)).map_err(training)?;
    let rows = dims.first().copied().unwrap_or(1);
    let activations = Tensor::f32(dims.to_vec(), vec![0.0; dims.iter().product()])?;
    let labels = Tensor::i64([rows], vec![0; rows])?;
    let rate = Tensor::f32([], vec![0.0])?;
    let inputs = [
        (graph.input.as_str(), &activations),
        (graph.targets.as_str(), &labels),
        (graph.scalars.learning_rate.as_str(), &rate),
    ];
    let mut fastest = f64::INFINITY;
    for step in 0..=STEPS {
        let started = Instant::now();
        session
            .step_until(&mut state, &inputs, &[&graph.loss], interrupt)
            .map_err(training)?;
        if step > 0 {
            fastest = fastest.min(started.elapsed().as_secs_f64());
        }
    }
    Ok(fastest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_graph::build::{Axis, batched, initializer, ints, model, node, value};
    use frostline_graph::onnx::{GraphProto, data_type};

    const CHANNELS: usize = 64;

    fn network() -> Model {
        let kernel = Tensor::f32([CHANNELS, CHANNELS, 3, 3], vec![0.01; CHANNELS * CHANNELS * 9]).unwrap();
        let classes = [Axis::batch(), Axis::Fixed(CHANNELS)];
        let graph = GraphProto {
            node: vec![
                node("Conv", &["x", "w"], &["c"]).with([ints("pads", &[1, 1, 1, 1])]),
                node("GlobalAveragePool", &["c"], &["p"]),
                node("Flatten", &["p"], &["logits"]),
            ],
            initializer: vec![initializer("w", &kernel)],
            input: vec![batched("x", &[CHANNELS, 4, 4])],
            output: vec![value("logits", data_type::FLOAT, &classes)],
            ..GraphProto::default()
        };
        Model::from_proto(model(17, graph)).unwrap()
    }

    fn choose(known: &Folder) -> BTreeSet<String> {
        let (options, interrupt) = (SessionOptions::default(), Interrupt::new());
        winograd(&network(), 2, &options, Some(known), &interrupt).unwrap()
    }

    #[test]
    fn what_was_measured_once_holds_for_the_next_job() {
        let place = tempfile::tempdir().unwrap();
        let known = Folder::new(place.path());
        let first = choose(&known);
        assert_eq!(choose(&known), first);
        let key = Key::of(&network(), 2, &SessionOptions::default());
        assert_eq!(known.get(SUBJECT, &key), Some(first));
    }

    #[test]
    fn a_stored_choice_is_taken_as_it_stands() {
        let place = tempfile::tempdir().unwrap();
        let known = Folder::new(place.path());
        let key = Key::of(&network(), 2, &SessionOptions::default());
        for stored in [BTreeSet::from(["w".to_owned()]), BTreeSet::new()] {
            known.put(SUBJECT, &key, &stored).unwrap();
            assert_eq!(choose(&known), stored);
        }
    }
}
