use super::refusal::shown;
use super::{Inadmissible, ModelLimits, weights};
use super::{empty, growth};
use crate::kinds::{Kinds, ValueKind};
use crate::onnx::NodeProto;
use crate::operators;
use crate::values::{Line, PROBE_BATCHES, Probes};
use crate::{GraphError, InputSize, Model};
use std::collections::{HashMap, HashSet};

/// Upper bound on a number of bytes that grows with the batch. It is `fixed + per_sample * batch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryBound {
    /// Bytes that do not depend on the batch.
    pub fixed: u64,
    /// Bytes for each sample.
    pub per_sample: u64,
}

impl MemoryBound {
    /// Returns the total for a batch of one sample: `fixed + per_sample`.
    pub(crate) fn for_one_sample(self) -> u64 {
        self.fixed.saturating_add(self.per_sample)
    }

    fn with(self, other: Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            fixed: combine(self.fixed, other.fixed),
            per_sample: combine(self.per_sample, other.per_sample),
        }
    }

    fn times(self, factor: u64) -> Self {
        let factor = Self {
            fixed: factor,
            per_sample: factor,
        };
        self.with(factor, u64::saturating_mul)
    }
}

/// Memory used by a network's values, including its input but not its weights, computed from shapes alone.
/// The workspace of kernels is not included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footprint {
    /// The largest single value.
    pub largest: MemoryBound,
    /// The largest sum of values alive at the same time. Nodes are assumed to execute in the file's order,
    /// and values to be freed after the last reader.
    pub alive: MemoryBound,
    /// All values together. This is the memory used if no value is freed, or if nodes execute in the worst
    /// order.
    pub total: MemoryBound,
}

impl Model {
    /// Returns an upper bound on the memory of the network's values, for every batch.
    ///
    /// # Errors
    /// Returns [`Inadmissible::UnknownSize`] if a size depends on the data, [`Inadmissible::NonlinearGrowth`]
    /// if a size does not grow linearly with the batch, [`Inadmissible::EmptyAxis`] if a node computes with
    /// an axis of size 0, [`GraphError::Shape`] if the inputs of a node do not fit its operator, and
    /// [`GraphError::InputShape`] if the shape of the input is unknown.
    pub fn footprint(&self) -> Result<Footprint, GraphError> {
        walk(self, &mut |_, _, _| Ok(()))
    }
}

/// Returns the footprint of an untrusted model if it is within `limits` and no kernel receives an axis of
/// size 0.
pub(crate) fn check(model: &Model, limits: &ModelLimits) -> Result<Footprint, GraphError> {
    let mut before = 0_u64;
    let mut row = 0_u64;
    let footprint = walk(model, &mut |node, size, work| {
        if size.for_one_sample() > limits.value_bytes {
            return Err(Inadmissible::ValueSize {
                node: shown(node.label()),
                operator: shown(&node.op_type),
                bytes: size.for_one_sample(),
                limit: limits.value_bytes,
            });
        }
        before = before.saturating_add(work.at_open);
        row = row.saturating_add(work.per_sample);
        if before > limits.constant_work {
            return Err(Inadmissible::ConstantWork {
                node: shown(node.label()),
                operator: shown(&node.op_type),
                limit: limits.constant_work,
            });
        }
        if row > limits.sample_work {
            return Err(Inadmissible::RowWork {
                node: shown(node.label()),
                operator: shown(&node.op_type),
                limit: limits.sample_work,
            });
        }
        Ok(())
    })?;
    for (what, size, limit) in [
        ("at the same time", footprint.alive, limits.alive_bytes),
        ("in total", footprint.total, limits.total_bytes),
    ] {
        if size.for_one_sample() > limit {
            let bytes = size.for_one_sample();
            return Err(Inadmissible::Footprint { what, bytes, limit }.into());
        }
    }
    Ok(footprint)
}

/// Multiply-adds required to compute a value.
struct ValueWork {
    /// Cost when an engine opens the model.
    at_open: u64,
    /// Cost for each sample.
    per_sample: u64,
}

/// Calls `each` with every output's size and work.
fn walk(
    model: &Model,
    each: &mut impl FnMut(&NodeProto, MemoryBound, ValueWork) -> Result<(), Inadmissible>,
) -> Result<Footprint, GraphError> {
    let mut probes = Probes::start(model)?;
    let mut memory = LiveMemory::start(model, &probes)?;
    for (index, node) in model.nodes().iter().enumerate() {
        probes.step(node)?;
        growth::check(node, &probes).map_err(|why| Inadmissible::NonlinearGrowth {
            node: shown(node.label()),
            operator: shown(&node.op_type),
            why,
        })?;
        empty::check(node, &probes)?;
        for name in node.output.iter().filter(|name| !name.is_empty()) {
            let elements = memory.elements_of(name, node, &probes)?;
            let size = memory.make(name, elements, &probes);
            each(node, size, memory.work(name, elements, node, &probes))?;
        }
        memory.leave(index, node);
    }
    Ok(memory.footprint)
}

/// Memory while the nodes execute in order.
struct LiveMemory<'a> {
    footprint: Footprint,
    alive: MemoryBound,
    kinds: Kinds,
    last_reader: HashMap<&'a str, usize>,
    /// Elements and bytes of all computed values.
    values: HashMap<&'a str, (MemoryBound, MemoryBound)>,
}

impl<'a> LiveMemory<'a> {
    fn start(model: &'a Model, probes: &Probes) -> Result<Self, GraphError> {
        let mut last_reader = HashMap::new();
        for (index, node) in model.nodes().iter().enumerate() {
            last_reader.extend(node.input.iter().map(|name| (name.as_str(), index)));
        }
        let outputs = model.outputs().iter();
        last_reader.extend(outputs.map(|output| (output.name.as_str(), usize::MAX)));
        let mut memory = Self {
            footprint: Footprint::default(),
            alive: MemoryBound::default(),
            kinds: Kinds::infer(model),
            last_reader,
            values: HashMap::new(),
        };
        for weight in &model.graph().initializer {
            let elements = known_elements(&weight.name, probes).unwrap_or_default();
            memory
                .values
                .insert(&weight.name, (elements, MemoryBound::default()));
        }
        for input in model.inputs() {
            let elements = known_elements(&input.name, probes).ok_or_else(|| GraphError::InputShape {
                input: input.name.clone(),
                why: "failed to infer the shape".into(),
                size: InputSize::Unfit,
            })?;
            memory.make(&input.name, elements, probes);
        }
        Ok(memory)
    }

    /// Returns the number of elements of an output. For statistics and indices after the first output, whose
    /// shapes are not inferred, the number of elements of the input is an upper bound.
    fn elements_of(
        &self,
        name: &str,
        node: &NodeProto,
        probes: &Probes,
    ) -> Result<MemoryBound, Inadmissible> {
        if let Some(elements) = known_elements(name, probes) {
            return Ok(elements);
        }
        let beside = node.output_name(0) != Some(name);
        let shrinks = beside && operators::find(node).is_some_and(|operator| operator.shrinks);
        let input = node.input_name(0).and_then(|name| self.values.get(name));
        match input {
            Some((elements, _)) if shrinks => Ok(*elements),
            _ => Err(Inadmissible::UnknownSize {
                node: shown(node.label()),
                operator: shown(node.standard_operator().unwrap_or_default()),
            }),
        }
    }

    /// Records a computed value and returns the number of bytes.
    fn make(&mut self, name: &'a str, elements: MemoryBound, probes: &Probes) -> MemoryBound {
        /// Bytes of the widest supported type, used for values of unknown type.
        const WIDEST: usize = 8;
        let width = weights::element_bytes(probes.data_type(name)).unwrap_or(WIDEST);
        let bytes = elements.times(width as u64);
        self.values.insert(name, (elements, bytes));
        self.alive = self.alive.with(bytes, u64::saturating_add);
        let footprint = &mut self.footprint;
        if bytes.for_one_sample() > footprint.largest.for_one_sample() {
            footprint.largest = bytes;
        }
        footprint.alive = footprint.alive.with(self.alive, u64::max);
        footprint.total = footprint.total.with(bytes, u64::saturating_add);
        bytes
    }

    /// Returns the work of a value. Values derived from weights alone are computed when an engine opens the
    /// model, the others in each execution.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss
    )]
    fn work(&self, name: &str, elements: MemoryBound, node: &NodeProto, probes: &Probes) -> ValueWork {
        if self.kinds.get(name) == ValueKind::Constant {
            let at_open = crate::cost::time(node, probes) as u64;
            return ValueWork {
                at_open,
                per_sample: 0,
            };
        }
        // Scale the work down from the probed batch to a single sample, in proportion to the number of
        // elements.
        let batch = elements.per_sample.saturating_mul(PROBE_BATCHES.0 as u64);
        let part = elements.for_one_sample() as f64 / (elements.fixed.saturating_add(batch).max(1)) as f64;
        let per_sample = (crate::cost::time(node, probes) * part) as u64;
        ValueWork {
            at_open: 0,
            per_sample,
        }
    }

    /// Frees the values that node `index` is the last to read, and outputs without readers. Values derived
    /// from weights alone stay alive, because engines compute them once and keep them.
    fn leave(&mut self, index: usize, node: &NodeProto) {
        let read = node
            .input
            .iter()
            .filter(|name| self.last_reader.get(name.as_str()) == Some(&index));
        let unread = node
            .output
            .iter()
            .filter(|name| !self.last_reader.contains_key(name.as_str()));
        let gone: HashSet<&String> = read.chain(unread).collect();
        for name in gone
            .into_iter()
            .filter(|name| self.kinds.get(name) != ValueKind::Constant)
        {
            let bytes = self
                .values
                .get(name.as_str())
                .map_or(MemoryBound::default(), |made| made.1);
            self.alive = self.alive.with(bytes, u64::saturating_sub);
        }
    }
}

/// Returns the number of elements of a value with a known shape, whose axes have been found to grow linearly
/// with the batch.
fn known_elements(name: &str, probes: &Probes) -> Option<MemoryBound> {
    let (small, large) = probes.both(name);
    let small = small.dims.as_ref()?;
    let large = large.dims.as_ref()?;
    let mut open = Line { slope: 0, offset: 1 };
    let mut rest = 1_u64;
    for (&small, &large) in small.iter().zip(large) {
        if small == large {
            rest = rest.saturating_mul(small as u64);
        } else {
            open = Line::through(i64::try_from(small).ok()?, i64::try_from(large).ok()?)?;
        }
    }
    let elements = MemoryBound {
        fixed: u64::try_from(open.offset).unwrap_or(0),
        per_sample: u64::try_from(open.slope).unwrap_or(0),
    };
    Some(elements.times(rest))
}
