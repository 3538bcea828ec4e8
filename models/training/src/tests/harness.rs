//! Builds small networks in `f64`, executes training graphs in the engine, and compares gradients with
//! central differences.

use crate::{Optimizer, StateSlot, StepSettings, TrainingGraph};
use frostline_engine::{Session, SessionOptions};
use frostline_graph::Model;
use frostline_graph::build::{self, Axis};
use frostline_graph::onnx::{GraphProto, NodeProto, TensorProto, data_type};
use frostline_tensor::{DType, Data, Tensor};
use prost::Message;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

pub(super) const PLAIN: Optimizer = Optimizer::Sgd {
    momentum: 0.0,
    nesterov: false,
    weight_decay: 0.0,
};

/// Returns random numbers between -1 and 1.
pub(super) fn random(shape: &[usize], dtype: DType, seed: u64) -> Tensor {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut number = || f64::from(rng.next_u32()) / f64::from(u32::MAX) * 2.0 - 1.0;
    let count: usize = shape.iter().product();
    let data = match dtype {
        DType::F64 => Data::F64((0..count).map(|_| number()).collect()),
        _ => Data::F32((0..count).map(|_| number() as f32).collect()),
    };
    Tensor::new(shape, data).unwrap()
}

pub(super) fn values(tensor: &Tensor) -> Vec<f64> {
    match tensor.data() {
        Data::F64(values) => values.clone(),
        Data::F32(values) => values.iter().map(|value| f64::from(*value)).collect(),
        other => panic!("not floating point: {other:?}"),
    }
}

pub(super) fn tensor(shape: &[usize], dtype: DType, values: Vec<f64>) -> Tensor {
    let data = match dtype {
        DType::F64 => Data::F64(values),
        _ => Data::F32(values.into_iter().map(|value| value as f32).collect()),
    };
    Tensor::new(shape, data).unwrap()
}

/// Network under construction with the output `logits`.
pub(super) struct Net {
    graph: GraphProto,
    opset: i64,
    dtype: DType,
}

impl Net {
    /// Creates a network in `f64` for rows with the shape `row`.
    pub(super) fn new(row: &[usize]) -> Self {
        Self::of(row, DType::F64)
    }

    pub(super) fn of(row: &[usize], dtype: DType) -> Self {
        let axes: Vec<Axis> = std::iter::once(Axis::batch())
            .chain(row.iter().map(|dim| Axis::Fixed(*dim)))
            .collect();
        let code = frostline_graph::tensors::code_of(dtype);
        let graph = GraphProto {
            name: "net".into(),
            input: vec![build::value("x", code, &axes)],
            output: vec![build::value(
                "logits",
                code,
                &[Axis::batch(), Axis::Named("classes".into())],
            )],
            ..Default::default()
        };
        Self {
            graph,
            opset: 18,
            dtype,
        }
    }

    pub(super) fn opset(mut self, version: i64) -> Self {
        self.opset = version;
        self
    }

    /// Adds a random weight.
    pub(super) fn weight(self, name: &str, shape: &[usize]) -> Self {
        let seed = name
            .bytes()
            .fold(shape.len() as u64, |seed, byte| seed * 31 + u64::from(byte));
        let weight = random(shape, self.dtype, seed);
        self.stored(name, &weight)
    }

    pub(super) fn stored(mut self, name: &str, tensor: &Tensor) -> Self {
        self.graph.initializer.push(build::initializer(name, tensor));
        self
    }

    pub(super) fn ints(mut self, name: &str, values: &[i64]) -> Self {
        self.graph.initializer.push(build::integers(name, values));
        self
    }

    pub(super) fn node(mut self, node: NodeProto) -> Self {
        self.graph.node.push(node);
        self
    }

    pub(super) fn op(self, operator: &str, inputs: &[&str], output: &str) -> Self {
        self.node(build::node(operator, inputs, &[output]))
    }

    /// Multiplies the input by a weight of the same shape, which receives the gradient of the following
    /// layers.
    pub(super) fn probed(self, row: &[usize]) -> Self {
        self.weight("probe", row).op("Mul", &["x", "probe"], "h")
    }

    /// Flattens `tensor` to `features` numbers per row and classifies it.
    pub(super) fn classified(self, tensor: &str, features: usize) -> Self {
        self.weight("head", &[features, 3])
            .op("Flatten", &[tensor], "flat")
            .op("MatMul", &["flat", "head"], "logits")
    }

    pub(super) fn model(self) -> Model {
        Model::from_proto(build::model(self.opset, self.graph)).unwrap()
    }
}

#[derive(Clone)]
pub(super) struct Batch {
    pub(super) activations: Tensor,
    pub(super) labels: Tensor,
}

impl Batch {
    pub(super) fn random(model: &Model, rows: usize, seed: u64) -> Self {
        let shapes = model.shapes(rows).unwrap();
        let input = model.inputs().next().unwrap();
        let entry = shapes.get(&input.name).unwrap();
        let dtype = if entry.data_type == data_type::DOUBLE {
            DType::F64
        } else {
            DType::F32
        };
        let classes = shapes.dims(&model.outputs()[0].name).unwrap()[1];
        let mut rng = ChaCha8Rng::seed_from_u64(seed + 1);
        let labels = (0..rows)
            .map(|_| i64::from(rng.next_u32()) % classes as i64)
            .collect();
        Self {
            activations: random(&entry.dims, dtype, seed),
            labels: Tensor::i64([rows], labels).unwrap(),
        }
    }

    pub(super) fn rows(&self, start: usize, end: usize) -> Self {
        Self {
            activations: self.activations.slice_rows(start, end).unwrap(),
            labels: self.labels.slice_rows(start, end).unwrap(),
        }
    }
}

/// Training graph with an open session.
pub(super) struct Trained {
    pub(super) graph: TrainingGraph,
    session: Session,
    steps: u64,
}

/// Result of a step.
pub(super) struct Step {
    pub(super) loss: f64,
    pub(super) logits: Tensor,
    /// Next state in the order of the slots.
    pub(super) state: Vec<Tensor>,
}

impl Trained {
    pub(super) fn new(model: &Model, rows: usize, settings: impl Into<StepSettings>) -> Self {
        Self::open(TrainingGraph::build(model, rows, settings).unwrap())
    }

    pub(super) fn open(graph: TrainingGraph) -> Self {
        let bytes = graph.model.clone().into_proto().encode_to_vec();
        let session = Session::open(
            &bytes,
            &SessionOptions {
                threads: 2,
                ..Default::default()
            },
        )
        .unwrap();
        Self {
            graph,
            session,
            steps: 0,
        }
    }

    pub(super) fn initial(&self) -> Vec<Tensor> {
        self.graph.state.iter().map(|slot| slot.initial.clone()).collect()
    }

    pub(super) fn step(&mut self, state: &[Tensor], batch: &Batch, rate: f64) -> Step {
        self.step_with(state, batch, rate, 0.0)
    }

    /// Performs a step in which averages decay by `decay`. The masks belong to the number of steps so far.
    pub(super) fn step_with(&mut self, state: &[Tensor], batch: &Batch, rate: f64, decay: f64) -> Step {
        let masks: Vec<Tensor> = self
            .graph
            .masks
            .iter()
            .map(|mask| mask.draw(self.steps, 0).unwrap())
            .collect();
        self.steps += 1;
        let [rate, decay] = [rate, decay].map(|number| tensor(&[], batch.activations.dtype(), vec![number]));
        let graph = &self.graph;
        let scalars = &graph.scalars;
        let mut inputs = vec![
            (graph.input.as_str(), &batch.activations),
            (graph.targets.as_str(), &batch.labels),
            (scalars.learning_rate.as_str(), &rate),
        ];
        inputs.extend(scalars.average_decay.as_deref().map(|name| (name, &decay)));
        inputs.extend(graph.masks.iter().map(|mask| mask.input.as_str()).zip(&masks));
        inputs.extend(graph.state.iter().map(|slot| slot.input.as_str()).zip(state));
        let taken: Vec<&str> = graph.model.inputs().map(|input| input.name.as_str()).collect();
        inputs.retain(|(name, _)| taken.contains(name));
        let outputs = self.session.run(&inputs).unwrap();
        let output = |name: &str| {
            let named = outputs.iter().find(|(output, _)| output == name);
            named.map(|(_, tensor)| tensor.clone())
        };
        let next = graph.state.iter().zip(state);
        Step {
            loss: output(&graph.loss).map_or(f64::NAN, |loss| values(&loss)[0]),
            logits: output(&graph.logits).unwrap_or_else(|| tensor(&[0], DType::F32, Vec::new())),
            state: next
                .map(|(slot, before)| output(&slot.output).unwrap_or_else(|| before.clone()))
                .collect(),
        }
    }

    /// Returns the gradients of all slots at `state`, the difference of a plain step with the learning rate
    /// 1.
    pub(super) fn gradients(&mut self, state: &[Tensor], batch: &Batch) -> Vec<Vec<f64>> {
        let next = self.step(state, batch, 1.0).state;
        let difference = |(before, after)| {
            values(before)
                .iter()
                .zip(values(after))
                .map(|(b, a)| b - a)
                .collect()
        };
        state.iter().zip(&next).map(difference).collect()
    }

    /// Returns the gradients at the initial state.
    pub(super) fn first_gradients(mut self, batch: &Batch) -> Vec<Vec<f64>> {
        let state = self.initial();
        self.gradients(&state, batch)
    }
}

/// Returns `state` with `by` added to an element.
fn moved(state: &[Tensor], slot: usize, element: usize, by: f64) -> Vec<Tensor> {
    let mut state = state.to_vec();
    let mut numbers = values(&state[slot]);
    numbers[element] += by;
    state[slot] = tensor(state[slot].shape().dims(), state[slot].dtype(), numbers);
    state
}

/// Step size of the differences, and absolute and relative tolerance of gradients.
struct Exactness {
    step: f64,
    absolute: f64,
    relative: f64,
}

const EXACT: Exactness = Exactness {
    step: 1e-5,
    absolute: 1e-7,
    relative: 1e-5,
};

/// Tolerance in `f32`: losses have seven digits, and larger steps are affected by curvature.
const ROUGH: Exactness = Exactness {
    step: 1e-2,
    absolute: 2e-4,
    relative: 1e-2,
};

/// Compares the gradients of all weights of an `f64` model with central differences, at up to `most` elements
/// per weight.
pub(super) fn check_elements(model: &Model, rows: usize, most: usize) {
    compare(model, &StepSettings::from(PLAIN), rows, most, &EXACT);
}

fn compare(model: &Model, settings: &StepSettings, rows: usize, most: usize, exactness: &Exactness) {
    let mut trained = Trained::new(model, rows, settings);
    let state = trained.initial();
    let batch = Batch::random(model, rows, 7);
    let gradients = trained.gradients(&state, &batch);
    for (slot, gradient) in gradients.iter().enumerate() {
        let name = trained.graph.state[slot].input.clone();
        if name.ends_with("/statistic") {
            continue;
        }
        assert!(
            gradient.iter().any(|number| *number != 0.0),
            "found only zero gradients for {name}"
        );
        let stride = gradient.len().div_ceil(most).max(1);
        for element in (0..gradient.len()).step_by(stride) {
            let up = trained
                .step(&moved(&state, slot, element, exactness.step), &batch, 0.0)
                .loss;
            let down = trained
                .step(&moved(&state, slot, element, -exactness.step), &batch, 0.0)
                .loss;
            let expected = (up - down) / (2.0 * exactness.step);
            let actual = gradient[element];
            let error = (expected - actual).abs();
            assert!(
                error < exactness.absolute + exactness.relative * expected.abs(),
                "{name}[{element}]: {actual}, by differences {expected}"
            );
        }
    }
}

/// Compares gradients with central differences at 40 elements per weight and batches of 3. In `f32`, also
/// compares the logits with the network.
pub(super) fn check(net: Net) {
    let model = net.model();
    check_elements(&model, 3, 40);
    check_scores(&of_type(&model, DType::F32));
}

/// Compares the logits of a step with the logits of the network in the engine.
fn check_scores(model: &Model) {
    let batch = Batch::random(model, 3, 7);
    let mut trained = Trained::new(model, 3, PLAIN);
    let state = trained.initial();
    let step = trained.step(&state, &batch, 0.0);
    let mut session = Session::open(&model.to_bytes().unwrap(), &SessionOptions::default()).unwrap();
    let input = model.inputs().next().unwrap().name.clone();
    let outputs = session.run(&[(&input, &batch.activations)]).unwrap();
    let actual = values(&step.logits);
    let expected = values(&outputs[0].1);
    assert_eq!(actual.len(), expected.len());
    for (place, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let error = (actual - expected).abs();
        assert!(
            error < 1e-4 + 1e-4 * expected.abs(),
            "score {place}: {actual} instead of {expected}"
        );
    }
}

/// Compares gradients like [`check`], with other settings and without the logits.
pub(super) fn check_with(net: Net, settings: &StepSettings) {
    compare(&net.model(), settings, 3, 40, &EXACT);
}

/// Like [`check_with`], with batches of `rows` rows.
pub(super) fn check_rows(net: Net, settings: &StepSettings, rows: usize) {
    compare(&net.model(), settings, rows, 40, &EXACT);
}

/// Compares gradients like [`check`] in `f32`, with a larger tolerance and without the logits.
pub(super) fn check_in_f32(net: Net) {
    compare(&net.model(), &StepSettings::from(PLAIN), 3, 40, &ROUGH);
}

/// Returns the names of the trained weights and statistics.
pub(super) fn weights(slots: &[StateSlot]) -> Vec<&str> {
    slots
        .iter()
        .filter_map(|slot| slot.parameter.as_deref())
        .collect()
}

/// Converts all `f32` tensors of `model` to `f64`.
pub(super) fn in_f64(model: &Model) -> Model {
    of_type(model, DType::F64)
}

/// Converts all floating-point tensors of `model` to `dtype`.
fn of_type(model: &Model, dtype: DType) -> Model {
    let floats = [data_type::FLOAT, data_type::DOUBLE];
    let code = frostline_graph::tensors::code_of(dtype);
    let convert = |stored: &mut TensorProto| {
        if floats.contains(&stored.data_type) {
            let plain = frostline_graph::tensors::from_proto(stored).unwrap();
            let converted = tensor(plain.shape().dims(), dtype, values(&plain));
            *stored = build::initializer(&stored.name, &converted);
        }
    };
    let mut proto = model.clone().into_proto();
    let graph = proto.graph.as_mut().unwrap();
    graph.initializer.iter_mut().for_each(convert);
    for attribute in graph.node.iter_mut().flat_map(|node| &mut node.attribute) {
        attribute.t.iter_mut().for_each(convert);
        if attribute.name == "to" && floats.iter().any(|float| i64::from(*float) == attribute.i) {
            attribute.i = code.into();
        }
    }
    graph.value_info.clear();
    for value in graph.input.iter_mut().chain(&mut graph.output) {
        if let Some(tensor) = value.r#type.as_mut().and_then(|kind| kind.tensor_type.as_mut()) {
            tensor.elem_type = code;
        }
    }
    Model::from_proto(proto).unwrap()
}
