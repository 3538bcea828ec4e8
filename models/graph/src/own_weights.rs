//! Gives the trained layers weights that training can change one by one.

use crate::analysis::Analysis;
use crate::form::{drop_unread, read_names};
use crate::onnx::{GraphProto, NodeProto, TensorProto, data_type};
use crate::operators;
use crate::replace::{every_name, fresh, store_constants};
use crate::tensors::{dims_of, dtype_of, from_proto, integers, numbers, to_float};
use crate::{GraphError, Model, build, from_end};
use frostline_tensor::{Data, Tensor};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

impl Model {
    /// Returns the network with weights that can be trained independently in the layers after the value
    /// `freeze`, which is a cut or the input. The frozen layers do not change, and the network computes the
    /// same values.
    ///
    /// - Weights shared with frozen layers are copied.
    /// - Exporters store equal tensors once. If all elements of a shared weight are equal, such as ones and
    ///   zeros from the initialization, every reader gets a copy. Other shared weights stay shared, because
    ///   networks tie weights on purpose.
    /// - A weight stored as integers behind a `DequantizeLinear` becomes a floating-point weight.
    /// - Weights in `Constant` nodes become initializers.
    ///
    /// # Errors
    /// Returns [`GraphError::Shape`] if the inputs of a node do not fit its operator,
    /// [`GraphError::Outputs`] if the model has no output, and [`GraphError::Weight`] if a weight cannot be
    /// read.
    pub fn with_own_weights(&self, freeze: &str) -> Result<Self, GraphError> {
        let mut graph = self.graph().clone();
        store_constants(&mut graph);
        let model = self.with_graph(graph)?;
        let trained = TrainedPart::find(&model, freeze)?;
        let mut owned = Owned::new(&model, &trained);
        for (index, node) in model.nodes().iter().enumerate() {
            owned.add(node, trained.needed_by(index))?;
        }
        self.with_graph(owned.finish())
    }
}

/// Layers that need a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NeededBy {
    Frozen,
    /// Computes a value for frozen and for trained layers.
    Both,
    Trained,
}

/// Nodes that the layers after the freeze cut need.
struct TrainedPart {
    frozen: HashSet<usize>,
    trained: HashSet<usize>,
}

impl TrainedPart {
    fn find(model: &Model, freeze: &str) -> Result<Self, GraphError> {
        let analysis = Analysis::run(model)?;
        let output = model.output_name()?;
        let trained = analysis.data_path(output, Some(freeze));
        let whole = analysis.data_path(output, None);
        let frozen = whole.difference(&trained).copied().collect();
        Ok(Self {
            frozen: with_computed_weights(&analysis, frozen),
            trained: with_computed_weights(&analysis, trained),
        })
    }

    fn needed_by(&self, index: usize) -> NeededBy {
        match (self.frozen.contains(&index), self.trained.contains(&index)) {
            (true, true) => NeededBy::Both,
            (false, true) => NeededBy::Trained,
            _ => NeededBy::Frozen,
        }
    }
}

/// Adds the nodes from which these nodes compute weights and shapes.
fn with_computed_weights(analysis: &Analysis<'_>, mut nodes: HashSet<usize>) -> HashSet<usize> {
    let readers = nodes.iter().filter_map(|index| analysis.links.node(*index));
    let computed: Vec<&str> = readers.flat_map(|node| computed_inputs(analysis, node)).collect();
    nodes.extend(
        analysis
            .links
            .upstream(computed, |node| computed_inputs(analysis, node)),
    );
    nodes
}

/// Returns the inputs that do not depend on the elements of the network's input.
fn computed_inputs<'n>(analysis: &Analysis<'_>, node: &'n NodeProto) -> Vec<&'n str> {
    let mut names = read_names(node);
    names.retain(|name| !analysis.kinds.is_data(name));
    names
}

struct Owned<'a> {
    graph: GraphProto,
    nodes: Vec<NodeProto>,
    names: HashSet<String>,
    stored: HashMap<String, TensorProto>,
    /// Names that frozen layers read.
    frozen: HashSet<&'a str>,
    /// Names in the trained layers of values that both parts read.
    copies: HashMap<String, String>,
    /// Stored weights with equal elements and several readers.
    shared: HashSet<&'a str>,
    /// Trained nodes that rearrange or cast a shared weight. Keys are the names of the outputs.
    rearranged: HashMap<String, NodeProto>,
    /// Shared weights that a trained node reads already.
    taken: HashSet<String>,
}

impl<'a> Owned<'a> {
    fn new(model: &'a Model, trained: &TrainedPart) -> Self {
        let graph = model.graph().clone();
        let nodes = model.nodes().iter().enumerate();
        let frozen = nodes.filter(|(index, _)| trained.needed_by(*index) != NeededBy::Trained);
        let stored = graph.initializer.iter();
        Self {
            nodes: Vec::with_capacity(graph.node.len()),
            names: every_name(&graph),
            stored: stored
                .map(|weight| (weight.name.clone(), weight.clone()))
                .collect(),
            frozen: frozen.flat_map(|(_, node)| read_names(node)).collect(),
            copies: HashMap::new(),
            shared: shared(model),
            rearranged: HashMap::new(),
            taken: HashSet::new(),
            graph,
        }
    }

    fn add(&mut self, node: &NodeProto, needed_by: NeededBy) -> Result<(), GraphError> {
        match needed_by {
            NeededBy::Frozen => self.nodes.push(node.clone()),
            NeededBy::Trained => self.add_trained(node.clone())?,
            NeededBy::Both => {
                self.nodes.push(node.clone());
                if node
                    .input
                    .iter()
                    .any(|name| self.copies.contains_key(name) || self.is_weight(name))
                {
                    let mut copy = node.clone();
                    copy.name = fresh(&node.name, &mut self.names);
                    for output in copy.output.iter_mut().filter(|output| !output.is_empty()) {
                        let name = fresh(output, &mut self.names);
                        self.copies.insert(std::mem::replace(output, name.clone()), name);
                    }
                    self.add_trained(copy)?;
                }
            }
        }
        Ok(())
    }

    fn add_trained(&mut self, mut node: NodeProto) -> Result<(), GraphError> {
        for input in &mut node.input {
            if let Some(copy) = self.copy_of(input) {
                *input = copy;
            }
        }
        if let Some(weight) = self.dequantized(&node)? {
            self.store(weight);
            return Ok(());
        }
        if self.root(&node.input, 0).is_some() && rearranges(&node) {
            let weight = node.input_name(0).and_then(|name| self.stored.get(name));
            let name = node.output_name(0).unwrap_or_default().to_owned();
            if let (Some(weight), "Identity") = (weight.cloned(), node.op_type.as_str()) {
                self.store(TensorProto { name, ..weight });
                return Ok(());
            }
            self.rearranged.insert(name, node.clone());
        } else {
            for slot in weight_slots(&node) {
                if let Some(own) = self.own(&node.input, slot)
                    && let Some(input) = node.input.get_mut(slot)
                {
                    *input = own;
                }
            }
        }
        self.nodes.push(node);
        Ok(())
    }

    /// Returns the name of the trained layers' copy of a value that both parts read.
    fn copy_of(&mut self, name: &str) -> Option<String> {
        if let Some(copy) = self.copies.get(name) {
            return Some(copy.clone());
        }
        if !self.frozen.contains(name) || !self.is_weight(name) {
            return None;
        }
        let copy = fresh(name, &mut self.names);
        let weight = self.stored.get(name)?.clone();
        self.store(TensorProto {
            name: copy.clone(),
            ..weight
        });
        self.copies.insert(name.to_owned(), copy.clone());
        Some(copy)
    }

    /// Returns true for a stored floating-point or quantized tensor with several elements.
    fn is_weight(&self, name: &str) -> bool {
        let stored = self.stored.get(name);
        stored.is_some_and(|weight| {
            let quantized = [data_type::INT8, data_type::UINT8].contains(&weight.data_type);
            (quantized || data_type::is_float(weight.data_type)) && elements(weight) > 1
        })
    }

    /// Returns the shared weight of which the input in `slot` has the elements.
    fn root(&self, inputs: &[String], slot: usize) -> Option<String> {
        let mut name = inputs.get(slot)?;
        while let Some(node) = self.rearranged.get(name) {
            name = node.input.first()?;
        }
        let origin = self.copies.iter().find(|(_, copy)| *copy == name);
        let origin = origin.map_or(name, |(origin, _)| origin);
        let is_shared = self.shared.contains(origin.as_str()) && self.stored.contains_key(name);
        is_shared.then(|| name.clone())
    }

    /// Copies the shared weight that the input in `slot` reads, with the nodes that rearrange it, and returns
    /// the name of the copy. Returns `None` for the first reader and if the weight is not shared.
    fn own(&mut self, inputs: &[String], slot: usize) -> Option<String> {
        let root = self.root(inputs, slot)?;
        if self.taken.insert(root.clone()) {
            return None;
        }
        let mut chain = Vec::new();
        let mut name = inputs.get(slot)?;
        while let Some(node) = self.rearranged.get(name) {
            chain.push(node.clone());
            name = node.input.first()?;
        }
        let weight = self.stored.get(&root)?.clone();
        let mut last = fresh(&root, &mut self.names);
        self.store(TensorProto {
            name: last.clone(),
            ..weight
        });
        for mut node in chain.into_iter().rev() {
            *node.input.first_mut()? = last;
            last = fresh(node.output.first()?, &mut self.names);
            node.output = vec![last.clone()];
            node.name.clone_from(&last);
            self.nodes.push(node);
        }
        Some(last)
    }

    /// Returns the weight that a `DequantizeLinear` of stored integers computes.
    fn dequantized(&self, node: &NodeProto) -> Result<Option<TensorProto>, GraphError> {
        let [values, scale, zero_point] =
            [0, 1, 2].map(|slot| node.input_name(slot).and_then(|name| self.stored.get(name)));
        let quantized = node.standard_operator() == Some("DequantizeLinear");
        let (true, Some(values), Some(scale)) = (quantized, values, scale) else {
            return Ok(None);
        };
        if node.input_name(2).is_some() && zero_point.is_none() {
            return Ok(None);
        }
        let name = node.output_name(0).unwrap_or_default();
        let dequantized = dequantize(node, values, scale, zero_point);
        let weight = dequantized.ok_or_else(|| GraphError::Weight {
            name: name.into(),
            why: "unsupported quantization; export the network without quantization".into(),
        })?;
        Ok(Some(build::initializer(name, &weight)))
    }

    fn store(&mut self, weight: TensorProto) {
        self.graph.initializer.push(weight.clone());
        self.stored.insert(weight.name.clone(), weight);
    }

    /// Returns the graph without unused nodes and weights.
    fn finish(mut self) -> GraphProto {
        self.graph.node = self.nodes;
        drop_unread(&mut self.graph);
        self.graph
    }
}

/// Returns the stored weights with equal elements that several nodes read, directly or rearranged.
fn shared(model: &Model) -> HashSet<&str> {
    let stored = model.initializers();
    let mut roots: HashMap<&str, &str> = stored.keys().map(|name| (*name, *name)).collect();
    let mut readers: HashMap<&str, usize> = HashMap::new();
    for node in model.nodes() {
        let first = node.input_name(0).and_then(|name| roots.get(name)).copied();
        if let (true, Some(root), Some(output)) = (rearranges(node), first, node.output_name(0)) {
            roots.insert(output, root);
            continue;
        }
        for root in node.input.iter().filter_map(|name| roots.get(name.as_str())) {
            *readers.entry(root).or_default() += 1;
        }
    }
    let several = readers.into_iter().filter(|(_, readers)| *readers > 1);
    let names = several.map(|(name, _)| name);
    names
        .filter(|name| stored.get(name).is_some_and(|weight| has_equal_elements(weight)))
        .collect()
}

/// Returns true if the output of the node has the elements of a stored weight.
fn rearranges(node: &NodeProto) -> bool {
    node.casts_to_float() || node.rearranges()
}

/// Returns the slots in which a node reads weights or statistics.
fn weight_slots(node: &NodeProto) -> Range<usize> {
    let slots = operators::find(node).map_or(0..0, |operator| operator.weights.clone());
    let end = match node.op_type.as_str() {
        "BatchNormalization" => 5,
        _ => slots.end,
    };
    slots.start..end.min(node.input.len())
}

/// Returns true for a stored float tensor whose elements are all equal.
pub(crate) fn has_equal_elements(weight: &TensorProto) -> bool {
    let Some(tensor) = from_proto(weight)
        .ok()
        .filter(|_| data_type::is_float(weight.data_type))
    else {
        return false;
    };
    let mut elements = tensor.as_bytes().chunks(tensor.dtype().size());
    let first = elements.next();
    first.is_some() && elements.all(|element| Some(element) == first)
}

pub(crate) fn elements(weight: &TensorProto) -> i64 {
    weight.dims.iter().product()
}

/// Computes `(values - zero) · scale` with a scale for the tensor or for every slice of an axis.
fn dequantize(
    node: &NodeProto,
    values: &TensorProto,
    scale: &TensorProto,
    zero: Option<&TensorProto>,
) -> Option<Tensor> {
    let dims = dims_of(values).ok()?;
    let scales = numbers(from_proto(scale).ok()?.data())?;
    let zeros = zero.map_or_else(|| Some(vec![0; scales.len()]), integers)?;
    let rank = i64::try_from(dims.len()).ok()?;
    let axis = from_end(node.int("axis").unwrap_or(1), rank);
    // The number of neighboring elements with the same scale.
    let each = match scales.len() {
        1 => usize::MAX,
        count => {
            let axis = usize::try_from(axis).ok()?;
            (dims.get(axis) == Some(&count)).then_some(())?;
            dims.get(axis + 1..)?.iter().product::<usize>().max(1)
        }
    };
    let elements = integers(values)?.into_iter().enumerate();
    let elements = elements
        .map(|(index, value)| {
            let slice = index / each % scales.len().max(1);
            Some((value.checked_sub(*zeros.get(slice)?)?) as f64 * scales.get(slice)?)
        })
        .collect::<Option<Vec<f64>>>()?;
    let tensor = Tensor::new(dims, Data::F64(elements)).ok()?;
    to_float(&tensor, dtype_of(scale.data_type)?)
}
