//! Cuts through several tensors. Examples are the features of several layers, the skip connections of a decoder, and
//! the features and the mask of a text encoder.

use crate::analysis::Analysis;
use crate::division::Division;
use crate::joint_names::{ADDED, MOST_TENSORS, added, batched, is_of, split};
use crate::network::Network;
use crate::onnx::{GraphProto, NodeProto, TensorProto, data_type};
use crate::separator::{Choice, Separator};
use crate::sweep::inside_quantization;
use crate::tensor_info::joinable;
use crate::values::signed;
use crate::{Cut, GraphError, Model, build, joint_inputs, modules};
use frostline_tensor::Shape;
use std::collections::{BTreeSet, HashMap, HashSet};

impl Model {
    /// Returns the network with a cut at `names`, which are separated by commas, and the name of this cut. A name
    /// is a tensor or the path of a module, as for [`Network::named`]. A single name selects an existing cut. With
    /// several names, the cut is named after the tensors in the order of execution.
    ///
    /// The tensors are flattened and concatenated into one `f32` tensor of shape `[batch, elements]`, which the later
    /// layers divide again. Everything that handles a cut handles this one, and the network computes the same as
    /// before. Integers are exact up to 2^24. Nodes that derive a mask from integers or booleans of the cut are
    /// repeated after the cut. [`Model::without_joints`] removes the additional nodes.
    ///
    /// The name of the input is returned unchanged, also if it contains commas.
    ///
    /// # Errors
    /// Returns [`GraphError::UnknownCut`] or [`GraphError::AmbiguousCut`] for a name that does not stand for one
    /// tensor. If a single tensor is not a cut, the error names the tensors to add. Returns [`GraphError::Joint`] if the
    /// tensors cannot be joined, or if they do not separate the input from the output; it then names the fewest tensors
    /// to add. Also returns the errors of [`Model::network`].
    pub fn with_cut(&self, names: &str) -> Result<(Self, String), GraphError> {
        if names == self.input_name()? {
            return Ok((self.clone(), names.to_owned()));
        }
        if !names.contains(',') {
            let network = self.network()?;
            return match network.named(names) {
                Ok(cut) => Ok((self.clone(), cut.name.clone())),
                Err(error) => Err(self.completed(names, error)?),
            };
        }
        let analysis = Analysis::run(self)?;
        let all = self.all_tensors(&analysis)?;
        let mut chosen = BTreeSet::new();
        for name in names.split(',') {
            let cut = all.named(name.trim())?;
            chosen.extend(all.cuts.iter().position(|other| other == cut));
        }
        let tensors: Vec<&Cut> = chosen.iter().filter_map(|place| all.cuts.get(*place)).collect();
        let cut: Vec<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        let name = cut.join(",");
        if cut.len() < 2 {
            return self.with_cut(&name);
        }
        check(&analysis, &tensors).map_err(|why| refused(names, why))?;
        let division = Division::new(&analysis, &cut);
        if !division.leaks()?.is_empty() {
            let why = match self.missing(&analysis, &all, &cut)? {
                Some(missing) => format!(
                    "they do not separate the input from the output; add `{}`",
                    missing.join("`, `")
                ),
                None => "later layers also read the network's input".to_owned(),
            };
            return Err(refused(names, why));
        }
        Ok((self.joined(&[division])?, name))
    }

    /// Returns the network without what [`Model::with_cut`] and [`Model::with_joint_input`] added, with the original
    /// inputs.
    ///
    /// # Errors
    /// Returns [`GraphError::Malformed`] if a later change renamed the additional tensors.
    pub fn without_joints(self) -> Result<Self, GraphError> {
        let split = self.joint_split();
        let joint_input = self.input_name().map(str::to_owned).unwrap_or_default();
        let mut proto = self.into_proto();
        if let Some(graph) = &mut proto.graph {
            if let Some(split) = split {
                joint_inputs::restore(graph, &joint_input, &split.inputs);
            }
            graph.node.retain(|node| !node.name.starts_with(ADDED));
            for name in graph.node.iter_mut().flat_map(|node| &mut node.input) {
                *name = name.trim_start_matches(ADDED).to_owned();
            }
            graph.initializer.retain(|weight| !weight.name.starts_with(ADDED));
        }
        Self::from_proto(proto)
    }

    /// Returns the network with all tensors of known shape as cuts, so that they can be found by name. Tensors inside
    /// a quantized operator are left out, as for single cuts.
    fn all_tensors(&self, analysis: &Analysis<'_>) -> Result<Network, GraphError> {
        let inside = inside_quantization(self, self.input_name()?);
        let produced = self.nodes().iter().flat_map(|node| &node.output);
        let data = produced.filter(|name| analysis.kinds.is_data(name) && !inside.contains(name.as_str()));
        let tensors = data.filter_map(|name| joinable(analysis, name));
        let mut cuts: Vec<Cut> = tensors.map(Cut::from).collect();
        modules::name(analysis, &mut cuts);
        Ok(Network {
            cuts,
            ..self.network_of(analysis)?
        })
    }

    /// Adds to the error for `name` which tensors are a cut together with it, if it is a tensor.
    fn completed(&self, name: &str, error: GraphError) -> Result<GraphError, GraphError> {
        let analysis = Analysis::run(self)?;
        let all = self.all_tensors(&analysis)?;
        let (GraphError::UnknownCut { .. }, Ok(tensor)) = (&error, all.named(name)) else {
            return Ok(error);
        };
        let Some(missing) = self.missing(&analysis, &all, &[&tensor.name])? else {
            return Ok(error);
        };
        let cut = [vec![name.to_owned()], missing].concat();
        Ok(GraphError::UnknownCut {
            name: name.into(),
            near: format!(
                "it does not separate the input from the output; use `{}`",
                cut.join(",")
            ),
        })
    }

    /// Returns the tensors that have to be added to `cut`, or `None` if later layers also read the input.
    fn missing(
        &self,
        analysis: &Analysis<'_>,
        all: &Network,
        cut: &[&str],
    ) -> Result<Option<Vec<String>>, GraphError> {
        let input = self.input_name()?;
        let apart = Separator::without(analysis, cut, Choice::Apart)?.fewest(MOST_TENSORS);
        let any = Separator::without(analysis, cut, Choice::Any)?.fewest(MOST_TENSORS);
        let mut names = match apart.or(any) {
            Some(names) => names.into_iter().map(str::to_owned).collect(),
            None => Division::new(analysis, cut).leaks()?,
        };
        let whole: Vec<&str> = cut
            .iter()
            .copied()
            .chain(names.iter().map(String::as_str))
            .collect();
        let rest = Division::new(analysis, &whole).leaks()?;
        names.extend(rest);
        if names.iter().any(|name| name == input) {
            return Ok(None);
        }
        Ok(Some(
            names
                .into_iter()
                .map(|name| {
                    all.cut(&name)
                        .map_or(name.clone(), |cut| all.title(cut).to_owned())
                })
                .collect(),
        ))
    }

    /// Inserts these cuts, which are in the order of execution. The nodes before a cut precede it, and later nodes read
    /// the parts of the last cut through a tensor.
    pub(crate) fn joined(&self, divisions: &[Division<'_>]) -> Result<Self, GraphError> {
        let mut graph = GraphProto {
            node: Vec::with_capacity(self.nodes().len()),
            ..self.graph().clone()
        };
        let mut open: Vec<(usize, &NodeProto)> = self.nodes().iter().enumerate().collect();
        let mut current = CurrentNames::default();
        for division in divisions {
            let (before, later): (Vec<_>, Vec<_>) = open
                .into_iter()
                .partition(|(index, _)| division.before.contains(index));
            open = later;
            graph
                .node
                .extend(before.into_iter().map(|(_, node)| current.read_by(node)));
            let name = division.cut.join(",");
            let (nodes, weights) = joint(division, &name, &mut current, self.opset());
            graph.node.extend(nodes);
            graph.initializer.extend(weights);
            let later: Vec<&NodeProto> = open.iter().map(|(_, node)| *node).collect();
            for index in division.repeated.needed(&later) {
                if let Some(node) = division.analysis.links.node(index) {
                    graph
                        .node
                        .push(current.repeated(node, &added("again", &name, index)));
                }
            }
        }
        graph
            .node
            .extend(open.into_iter().map(|(_, node)| current.read_by(node)));
        self.with_graph(graph)
    }

    /// Returns the network without the joint cuts `cuts`. Other joint cuts stay.
    pub(crate) fn without_cuts(&self, cuts: &[&str]) -> Result<Self, GraphError> {
        let mut graph = self.graph().clone();
        let nodes = std::mem::take(&mut graph.node);
        graph.node = nodes
            .into_iter()
            .filter(|node| !cuts.iter().any(|cut| is_of(node, cut)))
            .collect();
        let inputs = graph.input.iter().map(|input| &input.name);
        let weights = graph.initializer.iter().map(|weight| &weight.name);
        let outputs = graph.node.iter().flat_map(|node| &node.output);
        let present: HashSet<String> = inputs.chain(weights).chain(outputs).cloned().collect();
        for name in graph.node.iter_mut().flat_map(|node| &mut node.input) {
            // A slice has no tensors between two cuts that only layers outside of it read.
            while !present.contains(name.as_str())
                && let Some(earlier) = name.strip_prefix(ADDED)
            {
                *name = earlier.to_owned();
            }
        }
        let read: HashSet<&str> = graph.node.iter().flat_map(crate::read_names).collect();
        graph
            .initializer
            .retain(|weight| !weight.name.starts_with(ADDED) || read.contains(weight.name.as_str()));
        self.with_graph(graph)
    }
}

/// Names of tensors after the last cut that divided or repeated them.
#[derive(Default)]
struct CurrentNames<'a>(HashMap<&'a str, String>);

impl<'a> CurrentNames<'a> {
    fn get(&self, name: &str) -> String {
        self.0.get(name).map_or(name, String::as_str).to_owned()
    }

    /// Returns the name of the tensor after the next cut.
    fn advance(&mut self, name: &'a str) -> String {
        let next = format!("{ADDED}{}", self.get(name));
        self.0.insert(name, next.clone());
        next
    }

    /// Returns a node that reads the current tensors.
    fn read_by(&self, node: &NodeProto) -> NodeProto {
        let mut node = node.clone();
        for name in &mut node.input {
            *name = self.get(name);
        }
        node
    }

    /// Returns a copy of a node for the layers after the next cut.
    fn repeated(&mut self, node: &'a NodeProto, name: &str) -> NodeProto {
        let mut copy = self.read_by(node).named(name);
        for (output, original) in copy.output.iter_mut().zip(&node.output) {
            if !original.is_empty() {
                *output = self.advance(original);
            }
        }
        copy
    }
}

/// Element types of tensors that a joint cut converts to `f32`.
const CONVERTED: [i32; 4] = [
    data_type::INT64,
    data_type::INT32,
    data_type::BOOL,
    data_type::UINT8,
];

fn refused(names: &str, why: String) -> GraphError {
    GraphError::Joint {
        names: names.split(',').map(str::trim).collect::<Vec<_>>().join(", "),
        why,
    }
}

/// Returns true if a joint cut can contain a tensor of this type.
pub(crate) fn is_convertible(analysis: &Analysis<'_>, name: &str) -> bool {
    let code = analysis.probes.data_type(name);
    code == data_type::FLOAT || CONVERTED.contains(&code)
}

/// Checks that `tensors` can be one tensor.
fn check(analysis: &Analysis<'_>, tensors: &[&Cut]) -> Result<(), String> {
    if tensors.len() > MOST_TENSORS {
        return Err(format!(
            "{} tensors exceed the limit of {MOST_TENSORS}",
            tensors.len()
        ));
    }
    match tensors
        .iter()
        .find(|tensor| !is_convertible(analysis, &tensor.name))
    {
        Some(other) => Err(format!(
            "`{}` is of type {:?}, not f32 or an integer of up to 24 bits",
            other.name, other.dtype
        )),
        None => Ok(()),
    }
}

/// Returns the nodes that join the tensors of the cut `name` and divide them again, and the sizes that these nodes read.
fn joint<'a>(
    division: &Division<'a>,
    name: &str,
    current: &mut CurrentNames<'a>,
    opset: i64,
) -> (Vec<NodeProto>, Vec<TensorProto>) {
    let analysis = division.analysis;
    let count = division.cut.len();
    let [flat, parts] = ["flat", "part"].map(|role| {
        let names = (0..count).map(|number| added(role, name, number));
        names.collect::<Vec<String>>()
    });
    let [flat_names, part_names] =
        [&flat, &parts].map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
    let rows: Vec<Shape> = division
        .cut
        .iter()
        .map(|tensor| Shape::from(analysis.row_of(tensor).unwrap_or_default()))
        .collect();
    let mut nodes = Vec::new();
    for (number, (tensor, flat)) in division.cut.iter().zip(&flat).enumerate() {
        let mut source = current.get(tensor);
        if analysis.probes.data_type(tensor) != data_type::FLOAT {
            let single = added("f32", name, number);
            nodes.push(build::cast(&source, &single, data_type::FLOAT));
            source = single;
        }
        nodes.push(build::node("Flatten", &[&source], &[flat]).with([build::int("axis", 1)]));
    }
    let concat = build::node("Concat", &flat_names, &[name]).with([build::int("axis", 1)]);
    nodes.push(concat.named(&format!("{ADDED}{name}")));
    let sizes: Vec<i64> = rows
        .iter()
        .map(|row| row.dims().iter().map(|dim| signed(*dim)).product())
        .collect();
    let lengths = build::integers(&format!("{ADDED}sizes/{name}"), &sizes);
    let (split, mut weights) = split(name, &part_names, &sizes, lengths, opset);
    nodes.push(split);
    for (number, ((tensor, part), row)) in division.cut.iter().zip(&parts).zip(&rows).enumerate() {
        let code = analysis.probes.data_type(tensor);
        let shape = format!("{part}/shape");
        weights.push(build::integers(&shape, &batched(row)));
        let whole = current.advance(tensor);
        let shaped = match code {
            data_type::FLOAT => whole.clone(),
            _ => added("shaped", name, number),
        };
        let reshape = build::node("Reshape", &[part, &shape], &[&shaped]);
        nodes.push(reshape.named(&added("shaped", name, number)));
        if code != data_type::FLOAT {
            nodes.push(build::cast(&shaped, &whole, code).named(&added("whole", name, number)));
        }
    }
    (nodes, weights)
}
