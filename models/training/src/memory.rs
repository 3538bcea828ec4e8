use crate::readers::{Readers, is_view};
use crate::training_graph::TrainingGraph;
use crate::update::GraphKind;
use crate::{StateSlot, StepSettings, TrainingError};
use frostline_graph::onnx::NodeProto;
use frostline_graph::tensors::dtype_of;
use frostline_graph::{Model, Shapes};
use std::collections::{HashMap, HashSet};

/// Operators that ONNX Runtime executes in place if an operand of the output's size has no further readers.
const IN_PLACE: [&str; 10] = [
    "Add",
    "Clip",
    "Div",
    "HardSigmoid",
    "Mul",
    "Relu",
    "ScatterElements",
    "Sigmoid",
    "Sqrt",
    "Sub",
];

/// Memory of a training step in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepMemory {
    /// Weights and optimizer state.
    pub state: u64,
    /// Inputs of the step, plus the peak of tensors alive at the same time.
    pub peak: u64,
    /// Peak of tensors alive at the same time in the update, or 0 if the update is part of the step.
    pub update_peak: u64,
    /// Other rows of the batch, waiting in memory.
    pub waiting: u64,
}

impl StepMemory {
    /// Estimates the memory that the process needs in bytes. Peaks count four thirds, because tensors of many
    /// sizes leave gaps in an arena: with 9 suffixes and batches of 32, arenas needed 1.1 to 1.5 times the
    /// bytes alive.
    pub fn bytes(&self) -> u64 {
        let arenas = self.peak.saturating_add(self.update_peak) / 3 * 4;
        self.state.saturating_add(arenas).saturating_add(self.waiting)
    }

    /// Computes the memory of a step of [`TrainingGraph::build`] on a CPU, with `waiting` more rows of the batch in
    /// memory. No session is opened. Returns `None` if shapes cannot be inferred.
    pub(crate) fn of_suffix(
        suffix: &Model,
        rows: usize,
        waiting: usize,
        settings: &StepSettings,
    ) -> Result<Option<Self>, TrainingError> {
        let step = TrainingGraph::with_all_shapes(suffix, rows, settings, GraphKind::Step)?;
        let update = settings
            .accumulates
            .then(|| TrainingGraph::with_all_shapes(suffix, 1, settings, GraphKind::Update));
        Ok(Self::of_graphs(
            &step,
            update.transpose()?.as_ref(),
            rows,
            waiting,
        ))
    }

    /// Computes the memory of a `step` with `rows` rows while `waiting` other rows of the batch are held, and
    /// of a separate `update`. Returns `None` if shapes cannot be inferred. All shapes in both graphs must be
    /// visible.
    fn of_graphs(
        step: &TrainingGraph,
        update: Option<&TrainingGraph>,
        rows: usize,
        waiting: usize,
    ) -> Option<Self> {
        let shapes = step.model.shapes(1).ok()?;
        let inputs = step.model.inputs();
        let given = inputs.filter(|input| step.state.iter().all(|slot| slot.input != input.name));
        let given: u64 = given.map(|input| bytes(&shapes, &input.name)).sum();
        let row = bytes(&shapes, &step.input) / rows.max(1) as u64;
        Some(Self {
            state: step.state.iter().map(StateSlot::bytes).sum(),
            peak: given + peak(step, &shapes),
            update_peak: match update {
                Some(update) => peak(update, &update.model.shapes(1).ok()?),
                None => 0,
            },
            waiting: row * waiting as u64,
        })
    }
}

fn peak(graph: &TrainingGraph, shapes: &Shapes) -> u64 {
    Liveness::new(&graph.model, &graph.in_place, shapes).peak()
}

/// Returns the size of a tensor, or 0 if the shape is unknown.
fn bytes(shapes: &Shapes, name: &str) -> u64 {
    let Some(known) = shapes.get(name) else {
        return 0;
    };
    let elements: u64 = known.dims.iter().map(|dim| *dim as u64).product();
    elements * dtype_of(known.data_type).map_or(1, |dtype| dtype.size() as u64)
}

/// Returns the nodes in the order of execution in ONNX Runtime: depth first from the last node without
/// readers, and among the operands of a node the last node first.
fn order(nodes: &[NodeProto], readers: &Readers<'_>) -> Vec<usize> {
    let mut order = Vec::with_capacity(nodes.len());
    let mut seen = HashSet::new();
    let leaves = nodes.iter().enumerate().filter(|(_, node)| {
        let mut outputs = node.output.iter();
        outputs.all(|name| readers.readers(name).is_empty())
    });
    let mut open: Vec<(usize, bool)> = leaves.map(|(index, _)| (index, false)).collect();
    while let Some((index, operands_ran)) = open.pop() {
        if operands_ran {
            order.push(index);
            continue;
        }
        if !seen.insert(index) {
            continue;
        }
        open.push((index, true));
        let inputs = nodes.get(index).into_iter().flat_map(|node| &node.input);
        let makers = inputs.filter_map(|name| readers.maker(name));
        let mut makers: Vec<usize> = makers.filter(|maker| !seen.contains(maker)).collect();
        makers.sort_unstable();
        open.extend(makers.into_iter().map(|maker| (maker, false)));
    }
    order
}

/// Tracks live tensors along the execution order.
struct Liveness<'a> {
    nodes: Vec<&'a NodeProto>,
    shapes: &'a Shapes,
    /// Maps views to the tensor that owns the memory.
    viewed: HashMap<&'a str, &'a str>,
    last_reader: HashMap<&'a str, usize>,
    /// Outputs in memory that is counted as state.
    elsewhere: HashSet<&'a str>,
    alive: HashMap<&'a str, u64>,
    bytes: u64,
}

impl<'a> Liveness<'a> {
    fn new(model: &'a Model, in_place: &'a [String], shapes: &'a Shapes) -> Self {
        let all = model.nodes();
        let order = order(all, &Readers::new(all));
        let nodes: Vec<&NodeProto> = order.into_iter().filter_map(|index| all.get(index)).collect();
        let mut walk = Self {
            nodes: Vec::new(),
            shapes,
            viewed: HashMap::new(),
            last_reader: HashMap::new(),
            elsewhere: in_place.iter().map(String::as_str).collect(),
            alive: HashMap::new(),
            bytes: 0,
        };
        for (index, node) in nodes.iter().enumerate() {
            if let (true, Some(output), Some(input)) =
                (is_view(node), node.output.first(), node.input.first())
                && !walk.elsewhere.contains(output.as_str())
            {
                walk.viewed.insert(output, walk.whole(input));
            }
            for name in &node.input {
                walk.last_reader.insert(walk.whole(name), index);
            }
        }
        walk.nodes = nodes;
        let outputs = model.outputs().iter().map(|output| output.name.as_str());
        walk.last_reader.extend(outputs.map(|name| (name, usize::MAX)));
        walk
    }

    fn whole(&self, name: &'a str) -> &'a str {
        self.viewed.get(name).copied().unwrap_or(name)
    }

    /// Returns the largest number of bytes alive at the same time.
    fn peak(mut self) -> u64 {
        let mut peak = 0;
        for (index, node) in std::mem::take(&mut self.nodes).into_iter().enumerate() {
            self.make(index, node);
            peak = peak.max(self.bytes);
            let names = node.input.iter().chain(&node.output);
            for name in names {
                let whole = self.whole(name);
                if self.last_reader.get(whole).is_none_or(|last| *last <= index) {
                    self.leave(whole);
                }
            }
        }
        peak
    }

    fn make(&mut self, index: usize, node: &'a NodeProto) {
        for name in node.output.iter().map(String::as_str) {
            if self.viewed.contains_key(name) || self.elsewhere.contains(name) {
                continue;
            }
            let size = bytes(self.shapes, name);
            if IN_PLACE.contains(&node.op_type.as_str()) {
                let dying = node.input.iter().map(|name| self.whole(name)).find(|whole| {
                    self.last_reader.get(whole) == Some(&index) && self.alive.get(whole) == Some(&size)
                });
                dying.into_iter().for_each(|whole| self.leave(whole));
            }
            self.alive.insert(name, size);
            self.bytes += size;
        }
    }

    fn leave(&mut self, name: &str) {
        self.bytes -= self.alive.remove(name).unwrap_or_default();
    }
}
