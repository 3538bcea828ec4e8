//! Replaces the classifier head of a network.

use crate::analysis::Analysis;
use crate::head::{EXPECTED, FoundHead, HeadLayer, find, inputs};
use crate::initialize::Normal;
use crate::model::{casts_floats, stored_tensors};
use crate::network::obstacle;
use crate::onnx::{GraphProto, NodeProto, TensorProto, data_type};
use crate::tensors::{dtype_of, to_float};
use crate::values::signed;
use crate::{GraphError, Model, build};
use frostline_tensor::{DType, Tensor};
use std::collections::HashSet;

impl Model {
    /// Replaces the classifier head by one with `classes` classes. The weights are drawn with `seed` from a
    /// normal distribution with standard deviation 0.01, and the bias is zero. A Softmax, LogSoftmax, Relu or
    /// quantization after the head is removed, so the output has raw scores `[batch, classes]`. Weights that
    /// some exporters store in `Constant` nodes become initializers, so that all weights can be trained and
    /// merged by name.
    ///
    /// # Errors
    /// Returns [`GraphError::Head`] if no head is recognized, its weights are not f32 or f16,
    /// `classes` is zero, or the head cannot have this number of classes. Returns [`GraphError::Shape`] if
    /// the inputs of a node do not fit its operator, and [`GraphError::Outputs`] if the model has no output.
    pub fn replace_head(&self, classes: usize, seed: u64) -> Result<Self, GraphError> {
        self.replace_head_keeping(&vec![None; classes], seed)
    }

    /// Replaces the head as [`Model::replace_head`] does. `kept` contains an entry per new class. If the
    /// entry is the number of an old class, the weights and the bias of the old class are copied.
    ///
    /// # Errors
    /// Returns the errors of [`Model::replace_head`], and [`GraphError::Head`] if `kept` contains a class
    /// that the old head does not have.
    pub fn replace_head_keeping(&self, old_classes: &[Option<usize>], seed: u64) -> Result<Self, GraphError> {
        let classes = old_classes.len();
        if classes == 0 {
            return Err(cannot_replace("the number of classes must not be zero"));
        }
        let analysis = Analysis::run(self)?;
        let output = self.output_name()?;
        let found = find(&analysis, output)
            .ok_or_else(|| cannot_replace(&obstacle(&analysis).unwrap_or_else(|| EXPECTED.into())))?;
        let mut dtype = DType::F32;
        for layer in &found.layers {
            let node = self.nodes().get(layer.index);
            let weight = node.and_then(|node| node.input_name(1)).unwrap_or_default();
            let code = analysis.probes.data_type(weight);
            if ![data_type::FLOAT, data_type::FLOAT16, data_type::BFLOAT16].contains(&code) {
                let there =
                    dtype_of(code).map_or_else(|| format!("of type {code}"), |dtype| dtype.to_string());
                return Err(cannot_replace(&format!(
                    "weights `{weight}` are {there}; export the network in f32 (`model.float()` in PyTorch)"
                )));
            }
            dtype = dtype_of(code).unwrap_or(dtype);
        }
        let output_type = match analysis.probes.data_type(output) {
            code if data_type::is_float(code) => code,
            _ => data_type::FLOAT,
        };
        let mut edit = HeadEdit {
            graph: self.graph().clone(),
            names: every_name(self.graph()),
            found,
            classes,
            old_classes,
            dtype,
        };
        edit.replace_weights(seed)?;
        edit.replace_targets();
        edit.remove_activations(output);
        edit.flatten(self, output)
            .map_err(|error| match obstacle(&analysis) {
                Some(why) => cannot_replace(&why),
                None => error,
            })?;
        self.with_graph(edit.finish(output, output_type))
    }
}

impl Model {
    /// Returns the names of the weights and biases of the classifier head.
    ///
    /// # Errors
    /// Returns [`GraphError::Head`] if no head is recognized, [`GraphError::Shape`] if the inputs of a node
    /// do not fit its operator, and [`GraphError::Outputs`] if the model has no output.
    pub fn head_weights(&self) -> Result<Vec<String>, GraphError> {
        let analysis = Analysis::run(self)?;
        let found = find(&analysis, self.output_name()?).ok_or_else(|| cannot_replace(EXPECTED))?;
        let slots = found.layers.iter().flat_map(|layer| {
            let bias = layer.add.unwrap_or((layer.index, 2));
            [(layer.index, 1), bias]
        });
        let names = slots.filter_map(|(index, slot)| self.nodes().get(index)?.input_name(slot));
        Ok(names.map(str::to_owned).collect())
    }

    /// Returns the values to which torchvision's and timm's networks apply dropout in training: the inputs of
    /// the head, and the inputs of hidden linear layers before it, if they are computed from another linear
    /// layer through activations only.
    ///
    /// # Errors
    /// Returns the errors of [`Model::head_weights`].
    pub fn classifier_inputs(&self) -> Result<Vec<String>, GraphError> {
        let analysis = Analysis::run(self)?;
        let found = find(&analysis, self.output_name()?).ok_or_else(|| cannot_replace(EXPECTED))?;
        Ok(inputs(&analysis, &found))
    }
}

fn cannot_replace(why: &str) -> GraphError {
    GraphError::Head { why: why.into() }
}

pub(crate) fn every_name(graph: &GraphProto) -> HashSet<String> {
    let produced = graph.node.iter().flat_map(|node| node.output.iter().cloned());
    let nodes = graph.node.iter().map(|node| node.name.clone());
    let weights = graph.initializer.iter().map(|weight| weight.name.clone());
    produced
        .chain(nodes)
        .chain(weights)
        .chain(graph.input.iter().map(|input| input.name.clone()))
        .collect()
}

/// Returns `name` with underscores appended until it is not in `taken`.
pub(crate) fn free(name: &str, taken: &HashSet<String>) -> String {
    let mut names = std::iter::successors(Some(name.to_owned()), |name| Some(format!("{name}_")));
    names.find(|name| !taken.contains(name)).unwrap_or_default()
}

/// Reserves `name`, with a number appended if it is already in `names`.
pub(crate) fn fresh(name: &str, names: &mut HashSet<String>) -> String {
    let numbered = (2_u32..).map(|number| format!("{name}.{number}"));
    let mut candidates = std::iter::once(name.to_owned()).chain(numbered);
    let free = candidates.find(|name| !names.contains(name)).unwrap_or_default();
    names.insert(free.clone());
    free
}

struct HeadEdit<'a> {
    graph: GraphProto,
    names: HashSet<String>,
    found: FoundHead,
    classes: usize,
    /// The old class that each new class copies, if any.
    old_classes: &'a [Option<usize>],
    /// Type of the head's weights.
    dtype: DType,
}

impl HeadEdit<'_> {
    /// Returns the name of a new weight. If only this layer reads the old weight, the old one is removed and
    /// its name is reused.
    fn name_for(&mut self, layer: &HeadLayer, old: Option<&str>, role: &str) -> String {
        if let Some(old) = old {
            let readers = self
                .graph
                .node
                .iter()
                .flat_map(crate::form::read_names)
                .filter(|name| *name == old)
                .count();
            let place = self
                .graph
                .initializer
                .iter()
                .position(|weight| weight.name == old);
            if let (1, Some(place)) = (readers, place) {
                self.graph.initializer.remove(place);
                self.graph.input.retain(|input| input.name != old);
                return old.to_owned();
            }
        }
        fresh(&format!("{}.{role}", layer.head.node), &mut self.names)
    }

    fn replace_weights(&mut self, seed: u64) -> Result<(), GraphError> {
        for place in 0..self.found.layers.len() {
            if let Some(layer) = self.found.layers.get(place).cloned() {
                self.replace_layer(&layer, seed.wrapping_add(place as u64))?;
            }
        }
        Ok(())
    }

    fn replace_layer(&mut self, layer: &HeadLayer, seed: u64) -> Result<(), GraphError> {
        let classes = self.classes;
        let features = layer.head.features;
        let count = classes.checked_mul(features);
        let count =
            count.ok_or_else(|| cannot_replace(&format!("a head with {classes} classes is too large")))?;
        let mut weight = Normal::new(seed, Normal::HEAD).draw(count);
        let mut bias = vec![0.0; classes];
        let Some(node) = self.graph.node.get(layer.index).cloned() else {
            return Ok(());
        };
        let by_feature =
            node.op_type == "MatMul" || node.op_type == "Gemm" && node.int("transB").unwrap_or(0) == 0;
        if self.old_classes.iter().any(Option::is_some) {
            let old = self
                .rows(layer, &node, by_feature)
                .ok_or_else(|| cannot_replace("the old head computes its weights; replace the whole head"))?;
            for ((new, bias), kept) in weight
                .chunks_mut(features.max(1))
                .zip(&mut bias)
                .zip(self.old_classes)
            {
                if let Some(class) = *kept {
                    old.copy(class, new, bias)?;
                }
            }
        }
        let weight = if by_feature {
            tensor(vec![features, classes], transposed(&weight, features))?
        } else {
            tensor([vec![classes, features], vec![1; layer.kernel]].concat(), weight)?
        };
        let weight_name = self.name_for(layer, node.input_name(1), "weight");
        self.store(&weight_name, &weight);
        self.set_input(layer.index, 1, weight_name);
        self.replace_bias(layer, &node, tensor(vec![classes], bias)?);
        Ok(())
    }

    /// Returns the elements of the tensor with this name if it is constant.
    fn numbers(&self, name: &str) -> Option<Vec<f32>> {
        let tensor = crate::tensors::from_proto(&self.constant(name)?).ok()?;
        Some(to_float(&tensor, DType::F32)?.as_f32()?.to_vec())
    }

    /// Reads the weights and the bias of a layer. Returns `None` if the network computes them.
    fn rows(&self, layer: &HeadLayer, node: &NodeProto, by_feature: bool) -> Option<HeadWeights> {
        let classes = layer.head.classes;
        let features = layer.head.features;
        let weight = self.numbers(node.input_name(1)?)?;
        if weight.len() != classes * features {
            return None;
        }
        let bias = match (node.op_type.as_str(), layer.add) {
            ("MatMul", Some((index, slot))) => {
                self.graph.node.get(index).and_then(|add| add.input_name(slot))
            }
            ("MatMul", None) => None,
            _ => node.input_name(2),
        };
        let bias = match bias.filter(|name| !name.is_empty()) {
            None => vec![0.0; classes],
            Some(name) => match self.numbers(name)?.as_slice() {
                [one] => vec![*one; classes],
                several => several.to_vec(),
            },
        };
        Some(HeadWeights {
            weight: if by_feature {
                transposed(&weight, classes)
            } else {
                weight
            },
            bias,
            features,
        })
    }

    fn replace_bias(&mut self, layer: &HeadLayer, node: &NodeProto, bias: Tensor) {
        let (index, slot) = match (node.op_type.as_str(), layer.add) {
            ("MatMul", Some(add)) => add,
            ("MatMul", None) => {
                self.insert_bias(layer, node, &bias);
                return;
            }
            _ => (layer.index, 2),
        };
        let old = self
            .graph
            .node
            .get(index)
            .and_then(|node| node.input_name(slot))
            .map(str::to_owned);
        let name = self.name_for(layer, old.as_deref(), "bias");
        self.store(&name, &bias);
        self.set_input(index, slot, name);
    }

    /// Inserts an `Add` with the bias. Exporters drop a bias of zeros together with its `Add`.
    fn insert_bias(&mut self, layer: &HeadLayer, node: &NodeProto, bias: &Tensor) {
        let scores = node.output_name(0).unwrap_or_default().to_owned();
        let product = fresh(&format!("{scores}/product"), &mut self.names);
        let name = self.name_for(layer, None, "bias");
        self.store(&name, bias);
        if let Some(output) = self
            .graph
            .node
            .get_mut(layer.index)
            .and_then(|node| node.output.first_mut())
        {
            output.clone_from(&product);
        }
        let place = layer.index + 1;
        self.graph.node.insert(
            place,
            build::node("Add", &[&product, &name], &[&scores]).named(&name),
        );
        let later = self
            .found
            .layers
            .iter_mut()
            .filter(|other| other.index > layer.index);
        let later = later.flat_map(|other| {
            let add = other.add.as_mut().map(|(index, _)| index);
            std::iter::once(&mut other.index).chain(add)
        });
        later.chain(&mut self.found.tail).for_each(|index| *index += 1);
    }

    /// Stores a weight in the type of the old ones.
    fn store(&mut self, name: &str, weight: &Tensor) {
        let stored = to_float(weight, self.dtype);
        let weight = stored.as_ref().unwrap_or(weight);
        self.graph.initializer.push(build::initializer(name, weight));
    }

    fn set_input(&mut self, index: usize, slot: usize, name: String) {
        let Some(node) = self.graph.node.get_mut(index) else {
            return;
        };
        if node.input.len() <= slot {
            node.input.resize(slot + 1, String::new());
        }
        if let Some(input) = node.input.get_mut(slot) {
            *input = name;
        }
    }

    /// Replaces the number of classes in the targets of reshapes after the head.
    fn replace_targets(&mut self) {
        let old = signed(self.found.first().map_or(0, |layer| layer.head.classes));
        let new = signed(self.classes);
        for index in self.found.tail.clone() {
            let Some((label, mut sizes)) = self.target(index) else {
                continue;
            };
            sizes
                .iter_mut()
                .filter(|size| **size == old)
                .for_each(|size| *size = new);
            let name = fresh(&format!("{label}.shape"), &mut self.names);
            self.graph.initializer.push(build::integers(&name, &sizes));
            self.set_input(index, 1, name);
        }
    }

    /// Returns the label and the target of a `Reshape`, if the target is constant.
    fn target(&self, index: usize) -> Option<(String, Vec<i64>)> {
        let node = self.graph.node.get(index)?;
        let target = self
            .constant(node.input_name(1)?)
            .filter(|_| node.op_type == "Reshape")?;
        let sizes = crate::tensors::from_proto(&target).ok()?;
        Some((node.label().to_owned(), sizes.as_i64()?.to_vec()))
    }

    /// Returns the tensor with this name if it is constant.
    fn constant(&self, name: &str) -> Option<TensorProto> {
        let stored = stored_tensors(&self.graph, casts_floats);
        stored.get(name).copied().cloned()
    }

    /// Removes activations after the head, because the loss works on raw scores. This includes Relu, which
    /// SqueezeNet has after its convolution: with a fresh head, it cuts off the gradient of every class that
    /// starts below zero, and some classes never recover. A quantization of the scores is removed as well,
    /// because its range is the one of the old classes.
    fn remove_activations(&mut self, output: &str) {
        let mut tail = self.found.tail.clone();
        tail.sort_unstable_by(|a, b| b.cmp(a));
        for index in tail {
            let Some(node) = self.graph.node.get(index).filter(|node| {
                let operator = node.op_type.as_str();
                operator.ends_with("oftmax")
                    || matches!(operator, "Relu" | "QuantizeLinear" | "DequantizeLinear")
            }) else {
                continue;
            };
            let from = node.input_name(0).unwrap_or_default().to_owned();
            let to = node.output_name(0).unwrap_or_default().to_owned();
            // The name of the network's output must not change. For other values, readers are redirected to
            // the input of the activation.
            let (old, new) = if to == output { (from, to) } else { (to, from) };
            self.graph.node.remove(index);
            rename(&mut self.graph.node, &old, &new);
        }
    }

    /// Appends a `Flatten` if the scores have axes of size 1 after the classes.
    fn flatten(&mut self, model: &Model, output: &str) -> Result<(), GraphError> {
        let dims = model
            .with_graph(self.graph.clone())?
            .shapes(1)?
            .dims(output)
            .map(<[usize]>::to_vec);
        match dims.as_deref() {
            Some(&[1, classes]) if classes == self.classes => Ok(()),
            Some(&[1, classes, ref rest @ ..])
                if classes == self.classes && rest.iter().all(|&size| size == 1) =>
            {
                let scores = fresh(&format!("{output}/scores"), &mut self.names);
                rename(&mut self.graph.node, output, &scores);
                self.graph.node.push(
                    build::node("Flatten", &[&scores], &[output])
                        .named(&scores)
                        .with([build::int("axis", 1)]),
                );
                Ok(())
            }
            other => {
                let drawn = model.nodes().iter().find(|node| node.is_random());
                let why = match (other, drawn) {
                    (None, Some(node)) => format!(
                        "the network was exported in training mode, since it uses random numbers (`{}`); export it after `model.eval()`",
                        node.op_type
                    ),
                    (dims, _) => {
                        let shape = dims.map_or_else(|| "unknown".into(), |dims| format!("{dims:?}"));
                        let classes = self.classes;
                        format!("with {classes} classes the output's shape would be {shape}")
                    }
                };
                Err(GraphError::Head { why: why.into() })
            }
        }
    }

    /// Returns the graph with the new output. Outdated shapes and unused weights are removed.
    fn finish(mut self, output: &str, output_type: i32) -> GraphProto {
        store_constants(&mut self.graph);
        self.graph.value_info.clear();
        let axes = [build::Axis::batch(), build::Axis::Fixed(self.classes)];
        self.graph.output = vec![build::value(output, output_type, &axes)];
        crate::form::drop_unread(&mut self.graph);
        self.graph
    }
}

/// Weights and bias, grouped by class.
struct HeadWeights {
    /// Row-major matrix `[classes, features]`.
    weight: Vec<f32>,
    bias: Vec<f32>,
    features: usize,
}

impl HeadWeights {
    fn copy(&self, class: usize, weight: &mut [f32], bias: &mut f32) -> Result<(), GraphError> {
        let row = self.weight.chunks(self.features.max(1)).nth(class);
        let (Some(row), Some(shift)) = (row.filter(|row| row.len() == weight.len()), self.bias.get(class))
        else {
            let why = format!("the old head does not contain class {class}");
            return Err(cannot_replace(&why));
        };
        weight.copy_from_slice(row);
        *bias = *shift;
        Ok(())
    }
}

/// Converts floating-point tensors in `Constant` nodes to initializers. Scalars are not weights and stay.
pub(crate) fn store_constants(graph: &mut GraphProto) {
    let stored = &mut graph.initializer;
    graph.node.retain(|node| {
        let constant = node.standard_operator() == Some("Constant");
        let held = node.output_name(0).zip(node.tensor("value").filter(|_| constant));
        let weight = held.filter(|(_, value)| data_type::is_float(value.data_type) && !value.dims.is_empty());
        if let Some((name, value)) = weight {
            stored.push(TensorProto {
                name: name.to_owned(),
                ..value.clone()
            });
        }
        weight.is_none()
    });
}

pub(crate) fn rename(nodes: &mut [NodeProto], old: &str, new: &str) {
    for name in nodes
        .iter_mut()
        .flat_map(|node| node.input.iter_mut().chain(&mut node.output))
    {
        if name == old {
            new.clone_into(name);
        }
    }
}

/// Transposes a row-major matrix with this number of columns.
fn transposed(values: &[f32], columns: usize) -> Vec<f32> {
    let columns = (0..columns).map(|column| values.iter().skip(column).step_by(columns));
    columns.flatten().copied().collect()
}

fn tensor(dims: Vec<usize>, values: Vec<f32>) -> Result<Tensor, GraphError> {
    Tensor::f32(dims, values).map_err(|error| GraphError::Head { why: error.into() })
}
