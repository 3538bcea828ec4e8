//! Which convolutions Winograd's way is faster for: that depends on machine, engine and batch, so it is measured.

use crate::{Optimizer, StepSettings, TrainingError, TrainingGraph};
use frostline_graph::build::{Axis, batched, initializer, ints, model, node, value};
use frostline_graph::onnx::{GraphProto, NodeProto, TensorProto, data_type};
use frostline_graph::{Model, Shapes};
use frostline_tensor::Tensor;
use std::collections::{BTreeMap, BTreeSet};

/// What Winograd's way may take at most of the other's time: what it adds to rounding is not for nothing.
const WORTH: f64 = 0.97;

/// With fewer channels on either side the transforms take longer than what they spare.
const FEWEST_CHANNELS: usize = 64;

/// Elements of a batch's input above which a convolution is left as it is: the transformed tiles are 4 times as many, and live until the
/// backward pass.
const MOST_ELEMENTS: usize = 64 << 20;

const OPTIMIZER: Optimizer = Optimizer::Sgd {
    momentum: 0.9,
    nesterov: false,
    weight_decay: 0.0,
};

/// The one kernel of [`Shape::alone`].
const KERNEL: &str = "kernel";

/// The shape of a 3 x 3 convolution of stride 1.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    /// `[m, c, 3, 3]`.
    kernel: Vec<usize>,
    /// `[n, c, h, w]`.
    input: Vec<usize>,
    pads: Vec<i64>,
}

/// The weights of 3 x 3 convolutions in `suffix` for which [Winograd's way](StepSettings::winograd) is the faster one in batches of `batch`.
/// `seconds` tells how long a step takes on activations of these dimensions, infinity where it fails; it is asked twice for each shape that
/// there is, with graphs of one convolution.
///
/// # Errors
/// As [`TrainingGraph::build`].
pub fn faster_by_winograd(
    suffix: &Model,
    batch: usize,
    mut seconds: impl FnMut(&TrainingGraph, &[usize]) -> f64,
) -> Result<BTreeSet<String>, TrainingError> {
    let mut faster = BTreeSet::new();
    for (shape, weights) in shapes(suffix, batch)? {
        let alone = shape.alone()?;
        let mut took = |winograd: &[&str]| -> Result<f64, TrainingError> {
            let mut settings = StepSettings::from(OPTIMIZER);
            settings.winograd = winograd.iter().map(|name| (*name).to_owned()).collect();
            let graph = TrainingGraph::build(&alone, batch, settings)?;
            Ok(seconds(&graph, &shape.input))
        };
        let unrolled = took(&[])?;
        if took(&[KERNEL])? < WORTH * unrolled {
            faster.extend(weights);
        }
    }
    Ok(faster)
}

/// The weights that can be convolved with both ways, by shape.
fn shapes(suffix: &Model, batch: usize) -> Result<BTreeMap<Shape, Vec<String>>, TrainingError> {
    let (known, parameters) = (suffix.shapes(batch)?, suffix.parameters());
    let mut found: BTreeMap<Shape, Vec<String>> = BTreeMap::new();
    for node in suffix.nodes() {
        let weight = parameters
            .iter()
            .find(|weight| node.input_name(1) == Some(&weight.name));
        if let Some((weight, shape)) = weight.zip(Shape::of(&known, node)) {
            found.entry(shape).or_default().push(weight.name.clone());
        }
    }
    Ok(found)
}

impl Shape {
    /// That of `node`, where it is such a convolution.
    fn of(known: &Shapes, node: &NodeProto) -> Option<Self> {
        let ones = |name: &str| node.ints(name).is_none_or(|all| all.iter().all(|one| *one == 1));
        let plain = node.standard_operator() == Some("Conv")
            && node.int("group").unwrap_or(1) == 1
            && node
                .text("auto_pad")
                .is_none_or(|mode| matches!(mode, "NOTSET" | "VALID"))
            && ones("strides")
            && ones("dilations");
        let (input, kernel) = (known.dims(node.input_name(0)?)?, known.dims(node.input_name(1)?)?);
        let fits = matches!(kernel, [m, c, 3, 3] if *m.min(c) >= FEWEST_CHANNELS)
            && input.iter().product::<usize>() <= MOST_ELEMENTS;
        (plain && fits).then(|| Self {
            kernel: kernel.to_vec(),
            input: input.to_vec(),
            pads: node.ints("pads").unwrap_or(&[0; 4]).to_vec(),
        })
    }

    /// A network of this convolution alone, of whose input a gradient is wanted as well.
    fn alone(&self) -> Result<Model, TrainingError> {
        let filters = self.kernel.first().copied().unwrap_or(1);
        let row = self.input.get(1..).unwrap_or_default();
        let channels = [row.first().copied().unwrap_or(1), 1, 1];
        let filled = |name: &str, dims: &[usize]| {
            let filled = Tensor::f32(dims.to_vec(), vec![0.01; dims.iter().product()]);
            let filled = filled.map_err(|source| TrainingError::Weight {
                weight: name.to_owned(),
                source,
            });
            Ok::<TensorProto, TrainingError>(initializer(name, &filled?))
        };
        let graph = GraphProto {
            name: "convolution".to_owned(),
            node: vec![
                node("Mul", &["x", "scale"], &["scaled"]),
                node("Conv", &["scaled", KERNEL], &["convolved"]).with([ints("pads", &self.pads)]),
                node("GlobalAveragePool", &["convolved"], &["pooled"]),
                node("Flatten", &["pooled"], &["logits"]),
            ],
            initializer: vec![filled("scale", &channels)?, filled(KERNEL, &self.kernel)?],
            input: vec![batched("x", row)],
            output: vec![value(
                "logits",
                data_type::FLOAT,
                &[Axis::batch(), Axis::Fixed(filters)],
            )],
            ..GraphProto::default()
        };
        Ok(Model::from_proto(model(17, graph))?)
    }
}
