//! Replacing the classifier head by a fresh one.

use crate::analysis::Analysis;
use crate::head::{EXPECTED, Found, Layer, find, inputs};
use crate::initialize::Normal;
use crate::onnx::{GraphProto, NodeProto, TensorProto, data_type};
use crate::{GraphError, Model, build};
use frostline_tensor::Tensor;
use std::collections::HashSet;

impl Model {
    /// The network with its classifier head replaced by one that scores `classes` classes. Its weights are drawn from `seed` (normal,
    /// deviation 0.01), its bias is zero; a Softmax, LogSoftmax or Relu behind the head is removed, so the output is
    /// `[batch, classes]` of raw scores. Weights that some exporters keep in `Constant` nodes become initializers, so that all
    /// weights can be trained and merged by name.
    ///
    /// # Errors
    /// [`GraphError::Head`] when no head is recognized, or it cannot take another number of classes.
    pub fn replace_head(&self, classes: usize, seed: u64) -> Result<Self, GraphError> {
        self.keep_head(&vec![None; classes], seed)
    }

    /// The same, but for each new class that names one of the old head's the weights and bias of that one are kept.
    ///
    /// # Errors
    /// As [`Model::replace_head`], and [`GraphError::Head`] where the old head does not have a class that is named.
    pub fn keep_head(&self, kept: &[Option<usize>], seed: u64) -> Result<Self, GraphError> {
        let classes = kept.len();
        let cannot = |why: &str| GraphError::Head { why: why.into() };
        if classes == 0 {
            return Err(cannot("a head needs at least one class"));
        }
        let analysis = Analysis::run(self)?;
        let output = self.output_name()?;
        let found = find(&analysis, output).ok_or_else(|| cannot(EXPECTED))?;
        for layer in &found.layers {
            let node = self.nodes().get(layer.index);
            let weight = node.and_then(|node| node.input_name(1)).unwrap_or_default();
            if analysis.probes.data_type(weight) != data_type::FLOAT {
                return Err(cannot(&format!("its weights `{weight}` are not f32")));
            }
        }
        let mut edit = Edit {
            graph: self.graph().clone(),
            names: every_name(self.graph()),
            found,
            classes,
            kept,
        };
        edit.replace_weights(seed)?;
        edit.replace_targets();
        edit.remove_activations(output);
        edit.flatten(self, output)?;
        self.with_graph(edit.finish(output))
    }
}

impl Model {
    /// Names of the weights of its classifier head.
    ///
    /// # Errors
    /// [`GraphError::Head`] when no head is recognized.
    pub fn head_weights(&self) -> Result<Vec<String>, GraphError> {
        let analysis = Analysis::run(self)?;
        let found =
            find(&analysis, self.output_name()?).ok_or_else(|| GraphError::Head { why: EXPECTED.into() })?;
        let name = |index: usize, slot| self.nodes().get(index)?.input_name(slot).map(str::to_owned);
        let weights = found.layers.iter().flat_map(|layer| {
            let bias = layer.add.unwrap_or((layer.index, 2));
            [name(layer.index, 1), name(bias.0, bias.1)]
        });
        Ok(weights.flatten().collect())
    }

    /// The values that its classifier's layers read: what the head reads, and what a linear layer reads that stands between it and another
    /// one, with activations alone in between. There torchvision's and timm's networks drop elements in training.
    ///
    /// # Errors
    /// [`GraphError::Head`] when no head is recognized.
    pub fn classifier_inputs(&self) -> Result<Vec<String>, GraphError> {
        let analysis = Analysis::run(self)?;
        let found =
            find(&analysis, self.output_name()?).ok_or_else(|| GraphError::Head { why: EXPECTED.into() })?;
        Ok(inputs(&analysis, &found))
    }
}

/// All names that a graph uses.
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

/// A graph whose head is being replaced.
struct Edit<'a> {
    graph: GraphProto,
    names: HashSet<String>,
    found: Found,
    classes: usize,
    /// Of each new class the old one whose weights it has.
    kept: &'a [Option<usize>],
}

impl Edit<'_> {
    /// `name`, or with a number behind it while it is taken.
    fn fresh(&mut self, name: &str) -> String {
        let numbered = (2_u32..).map(|number| format!("{name}.{number}"));
        let free = std::iter::once(name.to_owned())
            .chain(numbered)
            .find(|name| !self.names.contains(name));
        let free = free.unwrap_or_default();
        self.names.insert(free.clone());
        free
    }

    /// The name a new weight gets: the old one's when no one else reads that, else a fresh one. The old one is removed.
    fn name_for(&mut self, layer: &Layer, old: Option<&str>, role: &str) -> String {
        if let Some(old) = old {
            let readers = self
                .graph
                .node
                .iter()
                .flat_map(crate::form::used)
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
        self.fresh(&format!("{}.{role}", layer.head.node))
    }

    fn replace_weights(&mut self, seed: u64) -> Result<(), GraphError> {
        for place in 0..self.found.layers.len() {
            if let Some(layer) = self.found.layers.get(place).cloned() {
                self.replace_layer(&layer, seed.wrapping_add(place as u64))?;
            }
        }
        Ok(())
    }

    fn replace_layer(&mut self, layer: &Layer, seed: u64) -> Result<(), GraphError> {
        let (classes, features) = (self.classes, layer.head.features);
        let count = classes.checked_mul(features);
        let count = count.ok_or_else(|| GraphError::Head {
            why: format!("{classes} classes are too many").into(),
        })?;
        let mut weight = Normal::new(seed, Normal::HEAD).draw(count);
        let mut bias = vec![0.0; classes];
        let Some(node) = self.graph.node.get(layer.index).cloned() else {
            return Ok(());
        };
        let by_feature =
            node.op_type == "MatMul" || node.op_type == "Gemm" && node.int("transB").unwrap_or(0) == 0;
        if self.kept.iter().any(Option::is_some) {
            let old = self.rows(layer, &node, by_feature)?;
            for ((new, bias), kept) in weight.chunks_mut(features.max(1)).zip(&mut bias).zip(self.kept) {
                if let Some(class) = *kept {
                    old.copy(class, new, bias)?;
                }
            }
        }
        let weight = if by_feature {
            tensor(vec![features, classes], transposed(&weight, classes, features))?
        } else {
            tensor([vec![classes, features], vec![1; layer.kernel]].concat(), weight)?
        };
        let weight_name = self.name_for(layer, node.input_name(1), "weight");
        self.graph
            .initializer
            .push(build::initializer(&weight_name, &weight));
        self.set_input(layer.index, 1, weight_name);
        self.replace_bias(layer, &node, tensor(vec![classes], bias)?);
        Ok(())
    }

    /// The weights that a layer has.
    fn rows(&self, layer: &Layer, node: &NodeProto, by_feature: bool) -> Result<Rows, GraphError> {
        let cannot = || GraphError::Head {
            why: "its weights cannot be read, so they cannot be kept".into(),
        };
        let values = |name: Option<&str>| -> Option<Vec<f32>> {
            let tensor = crate::tensors::from_proto(&self.constant(name?)?).ok()?;
            Some(tensor.as_f32()?.to_vec())
        };
        let (classes, features) = (layer.head.classes, layer.head.features);
        let weight = values(node.input_name(1)).filter(|values| values.len() == classes * features);
        let weight = weight.ok_or_else(cannot)?;
        let bias = match (node.op_type.as_str(), layer.add) {
            ("MatMul", Some((index, slot))) => {
                self.graph.node.get(index).and_then(|add| add.input_name(slot))
            }
            ("MatMul", None) => None,
            _ => node.input_name(2),
        };
        let bias = match bias.filter(|name| !name.is_empty()) {
            None => vec![0.0; classes],
            some => match values(some).ok_or_else(cannot)?.as_slice() {
                [one] => vec![*one; classes],
                several => several.to_vec(),
            },
        };
        Ok(Rows {
            weight: if by_feature {
                transposed(&weight, features, classes)
            } else {
                weight
            },
            bias,
            features,
        })
    }

    fn replace_bias(&mut self, layer: &Layer, node: &NodeProto, bias: Tensor) {
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
        self.graph.initializer.push(build::initializer(&name, &bias));
        self.set_input(index, slot, name);
    }

    /// Exporters drop a bias of zeros, and the `Add` with it: it comes back here.
    fn insert_bias(&mut self, layer: &Layer, node: &NodeProto, bias: &Tensor) {
        let scores = node.output_name(0).unwrap_or_default().to_owned();
        let product = self.fresh(&format!("{scores}/product"));
        let name = self.name_for(layer, None, "bias");
        self.graph.initializer.push(build::initializer(&name, bias));
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

    /// Reshapes behind the head that name the number of classes name the new one.
    fn replace_targets(&mut self) {
        let count = |classes| i64::try_from(classes).unwrap_or(i64::MAX);
        let (old, new) = (
            count(self.found.first().map_or(0, |layer| layer.head.classes)),
            count(self.classes),
        );
        for index in self.found.tail.clone() {
            let Some((label, mut sizes)) = self.target(index) else {
                continue;
            };
            sizes
                .iter_mut()
                .filter(|size| **size == old)
                .for_each(|size| *size = new);
            let name = self.fresh(&format!("{label}.shape"));
            self.graph.initializer.push(build::integers(&name, &sizes));
            self.set_input(index, 1, name);
        }
    }

    /// How a `Reshape` is called and where it goes, when that is constant.
    fn target(&self, index: usize) -> Option<(String, Vec<i64>)> {
        let node = self.graph.node.get(index)?;
        let target = self
            .constant(node.input_name(1)?)
            .filter(|_| node.op_type == "Reshape")?;
        let sizes = crate::tensors::from_proto(&target).ok()?;
        Some((node.label().to_owned(), sizes.as_i64()?.to_vec()))
    }

    /// The tensor behind a name that is an initializer or a `Constant` node's output.
    fn constant(&self, name: &str) -> Option<TensorProto> {
        let weight = self.graph.initializer.iter().find(|weight| weight.name == name);
        let mut constants = self.graph.node.iter().filter(|node| node.op_type == "Constant");
        let held = || {
            constants
                .find(|node| node.output_name(0) == Some(name))?
                .tensor("value")
        };
        weight.or_else(held).cloned()
    }

    /// The loss works on raw scores. A Relu on them, as SqueezeNet has one behind its convolution, goes too: under a fresh head it
    /// cuts off the gradient of every class that starts below zero, and some never recover.
    fn remove_activations(&mut self, output: &str) {
        let mut tail = self.found.tail.clone();
        tail.sort_unstable_by(|a, b| b.cmp(a));
        for index in tail {
            let Some(node) = self
                .graph
                .node
                .get(index)
                .filter(|node| node.op_type.ends_with("oftmax") || node.op_type == "Relu")
            else {
                continue;
            };
            let (from, to) = (
                node.input_name(0).unwrap_or_default().to_owned(),
                node.output_name(0).unwrap_or_default().to_owned(),
            );
            // The output keeps its name; elsewhere readers turn to what the activation read.
            let (old, new) = if to == output { (from, to) } else { (to, from) };
            self.graph.node.remove(index);
            rename(&mut self.graph.node, &old, &new);
        }
    }

    /// Appends a `Flatten` where the scores still have axes of size 1 behind the classes.
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
                let scores = self.fresh(&format!("{output}/scores"));
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
                        "the network draws random numbers (`{}`), so it was exported in training mode; export it after `model.eval()`",
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

    /// The graph with its new output, without notes on shapes that no longer hold and weights no one reads.
    fn finish(mut self, output: &str) -> GraphProto {
        store_constants(&mut self.graph);
        self.graph.value_info.clear();
        self.graph.output = vec![build::batched(output, &[self.classes])];
        crate::form::drop_unread(&mut self.graph);
        self.graph
    }
}

/// What a layer's classes have.
struct Rows {
    /// Class after class.
    weight: Vec<f32>,
    bias: Vec<f32>,
    features: usize,
}

impl Rows {
    fn copy(&self, class: usize, weight: &mut [f32], bias: &mut f32) -> Result<(), GraphError> {
        let row = self.weight.chunks(self.features.max(1)).nth(class);
        let (Some(row), Some(shift)) = (row.filter(|row| row.len() == weight.len()), self.bias.get(class))
        else {
            let why = format!("it has no class of number {class}").into();
            return Err(GraphError::Head { why });
        };
        weight.copy_from_slice(row);
        *bias = *shift;
        Ok(())
    }
}

/// Makes initializers of the float tensors in `Constant` nodes; single numbers stay, they are no weights.
fn store_constants(graph: &mut GraphProto) {
    let stored = &mut graph.initializer;
    graph.node.retain(|node| {
        let constant = node.standard_operator() == Some("Constant");
        let held = node.output_name(0).zip(node.tensor("value").filter(|_| constant));
        let weight = held.filter(|(_, value)| value.data_type == data_type::FLOAT && !value.dims.is_empty());
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

/// `[rows, columns]` as `[columns, rows]`.
fn transposed(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let column = |column: usize| {
        values
            .iter()
            .skip(column)
            .step_by(columns.max(1))
            .take(rows)
            .copied()
    };
    (0..columns).flat_map(column).collect()
}

fn tensor(dims: Vec<usize>, values: Vec<f32>) -> Result<Tensor, GraphError> {
    Tensor::f32(dims, values).map_err(|error| GraphError::Head { why: error.into() })
}
