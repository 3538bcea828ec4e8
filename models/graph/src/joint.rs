//! Cuts through several tensors. Examples are the features of several layers, the skip connections of a decoder, and
//! the features and the mask of a text encoder.

use crate::analysis::Analysis;
use crate::joint_names::{ADDED, MOST_TENSORS, batched, split};
use crate::network::{Network, joinable};
use crate::onnx::{GraphProto, NodeProto, TensorProto, data_type};
use crate::repeat::Repeated;
use crate::separator::{Choice, Separator};
use crate::sweep::inside_quantization;
use crate::values::signed;
use crate::{Cut, GraphError, Model, build, joint_inputs, modules};
use std::collections::{BTreeSet, HashSet};

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
        Ok((self.joined(&division, &tensors, &name)?, name))
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
                if let Some(original) = name.strip_prefix(ADDED) {
                    *name = original.to_owned();
                }
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
        let apart = Separator::new(analysis, cut, Choice::Apart)?.fewest(MOST_TENSORS);
        let any = Separator::new(analysis, cut, Choice::Any)?.fewest(MOST_TENSORS);
        let mut names = match apart.or(any) {
            Some(names) => names,
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

    /// Inserts the cut between the nodes before it and the others.
    fn joined(&self, division: &Division<'_>, tensors: &[&Cut], name: &str) -> Result<Self, GraphError> {
        let types = tensors
            .iter()
            .map(|tensor| division.analysis.probes.data_type(&tensor.name));
        let types: Vec<i32> = types.collect();
        let (joint, weights) = joint(tensors, &types, name, self.opset());
        let nodes = self.nodes().iter().enumerate();
        let (frozen, later): (Vec<_>, Vec<_>) = nodes.partition(|(index, _)| division.before.contains(index));
        let later: Vec<&NodeProto> = later.into_iter().map(|(_, node)| node).collect();
        let repeated = division.repeated.needed(&later);
        let again = repeated.iter().filter_map(|index| self.nodes().get(*index));
        let mut again: Vec<NodeProto> = again.cloned().collect();
        let mut later: Vec<NodeProto> = later.into_iter().cloned().collect();
        for name in again
            .iter_mut()
            .chain(&mut later)
            .flat_map(|node| &mut node.input)
        {
            if tensors.iter().any(|tensor| tensor.name == *name)
                || division.repeated.produces(&repeated, name)
            {
                name.insert_str(0, ADDED);
            }
        }
        for node in &mut again {
            let outputs = node.output.iter_mut();
            outputs
                .filter(|name| !name.is_empty())
                .for_each(|name| name.insert_str(0, ADDED));
            node.name = format!("{ADDED}again/{}", node.label());
        }
        let frozen = frozen.into_iter().map(|(_, node)| node.clone());
        let mut graph = GraphProto {
            node: frozen.chain(joint).chain(again).chain(later).collect(),
            ..self.graph().clone()
        };
        graph.initializer.extend(weights);
        self.with_graph(graph)
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

/// Checks that `tensors` can be one tensor.
fn check(analysis: &Analysis<'_>, tensors: &[&Cut]) -> Result<(), String> {
    if tensors.len() > MOST_TENSORS {
        return Err(format!(
            "{} tensors exceed the limit of {MOST_TENSORS}",
            tensors.len()
        ));
    }
    let fits = |tensor: &&&Cut| {
        let code = analysis.probes.data_type(&tensor.name);
        code == data_type::FLOAT || CONVERTED.contains(&code)
    };
    match tensors.iter().find(|tensor| !fits(tensor)) {
        Some(other) => Err(format!(
            "`{}` is of type {:?}, not f32 or an integer of up to 24 bits",
            other.name, other.dtype
        )),
        None => Ok(()),
    }
}

/// Nodes on both sides of a cut.
struct Division<'a> {
    analysis: &'a Analysis<'a>,
    cut: &'a [&'a str],
    /// Nodes that the tensors of the cut are computed by.
    before: HashSet<usize>,
    /// Nodes before the cut that can be repeated after it.
    repeated: Repeated<'a>,
}

impl<'a> Division<'a> {
    fn new(analysis: &'a Analysis<'a>, cut: &'a [&'a str]) -> Self {
        let before = analysis.links.upstream(cut.iter().copied(), crate::read_names);
        let repeated = Repeated::new(analysis, &before, cut);
        Self {
            analysis,
            cut,
            before,
            repeated,
        }
    }

    /// Returns the other tensors on the path of the data that cross the cut. They are sorted by the order of execution.
    fn leaks(&self) -> Result<Vec<String>, GraphError> {
        let mut leaks = Vec::new();
        let model = self.analysis.model;
        for index in BTreeSet::from_iter(self.analysis.data_path(model.output_name()?, None)) {
            let later = model.nodes().get(index);
            let Some(node) = later.filter(|_| !self.before.contains(&index)) else {
                continue;
            };
            for name in self.analysis.data_inputs(node) {
                let producer = self.analysis.links.producer(name).map(|(index, _)| index);
                let is_behind = producer.is_some_and(|index| !self.before.contains(&index));
                // Nodes inside of branches keep reading their tensors.
                let is_read = node.input.iter().any(|input| input == name);
                let is_repeated = producer.is_some_and(|index| self.repeated.contains(index));
                let is_divided = is_read && (self.cut.contains(&name) || is_repeated);
                if !is_behind && !is_divided && !leaks.iter().any(|leak| leak == name) {
                    leaks.push(name.to_owned());
                }
            }
        }
        Ok(leaks)
    }
}

/// Returns the nodes that join `tensors` and divide them again, and the sizes that these nodes read.
fn joint(tensors: &[&Cut], types: &[i32], name: &str, opset: i64) -> (Vec<NodeProto>, Vec<TensorProto>) {
    let [flat, parts] = ["flat", "part"].map(|what| {
        let names = (0..tensors.len()).map(|number| format!("{ADDED}{what}/{name}/{number}"));
        names.collect::<Vec<String>>()
    });
    let [flat_names, part_names] =
        [&flat, &parts].map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut nodes = Vec::new();
    for ((tensor, flat), code) in tensors.iter().zip(&flat).zip(types) {
        let single = format!("{flat}/f32");
        if *code != data_type::FLOAT {
            nodes.push(build::cast(&tensor.name, &single, data_type::FLOAT));
        }
        let source = match *code {
            data_type::FLOAT => &tensor.name,
            _ => &single,
        };
        nodes.push(build::node("Flatten", &[source], &[flat]).with([build::int("axis", 1)]));
    }
    let concat = build::node("Concat", &flat_names, &[name]).with([build::int("axis", 1)]);
    nodes.push(concat.named(&format!("{ADDED}{name}")));
    let sizes: Vec<i64> = tensors
        .iter()
        .map(|tensor| tensor.shape.dims().iter().map(|dim| signed(*dim)).product())
        .collect();
    let lengths = build::integers(&format!("{ADDED}sizes/{name}"), &sizes);
    let (split, mut weights) = split(name, &part_names, &sizes, lengths, opset);
    nodes.push(split);
    for ((tensor, part), code) in tensors.iter().zip(&parts).zip(types) {
        let shape = format!("{part}/shape");
        weights.push(build::integers(&shape, &batched(&tensor.shape)));
        let whole = format!("{ADDED}{}", tensor.name);
        let shaped = match *code {
            data_type::FLOAT => whole.clone(),
            _ => format!("{part}/shaped"),
        };
        nodes.push(build::node("Reshape", &[part, &shape], &[&shaped]));
        if *code != data_type::FLOAT {
            nodes.push(build::cast(&shaped, &whole, *code));
        }
    }
    (nodes, weights)
}
