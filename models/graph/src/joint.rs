//! Cuts through several tensors, such as the features of several layers or the skip connections of a decoder.

use crate::analysis::Analysis;
use crate::network::{Cut, Network, info};
use crate::onnx::{GraphProto, NodeProto, TensorProto};
use crate::separator::Separator;
use crate::{GraphError, Model, build, modules};
use frostline_tensor::DType;
use std::collections::{BTreeSet, HashSet};

/// Maximum number of tensors of a cut.
const MOST_TENSORS: usize = 8;

/// Prefix of the nodes and tensors that a joint cut adds. No exporter uses it.
const ADDED: &str = "frostline.joint/";

/// First version of ONNX's operators in which `Split` takes the sizes as an input.
const SPLIT_WITH_INPUT: i64 = 13;

impl Model {
    /// Returns the network with a cut at `names`, which are separated by commas, and the name of this cut. A name
    /// is a tensor or the path of a module, as for [`Network::named`]. A single name selects an existing cut. With
    /// several names, the cut is named after the tensors in the order of execution.
    ///
    /// The tensors are flattened and concatenated into one tensor of shape `[batch, elements]`, which the later
    /// layers divide again. Everything that handles a cut handles this one, and the network computes the same as
    /// before. [`Model::without_joint_cuts`] removes the additional nodes.
    ///
    /// # Errors
    /// Returns [`GraphError::UnknownCut`] or [`GraphError::AmbiguousCut`] for a name that does not stand for one
    /// tensor. Returns [`GraphError::Joint`] if the tensors cannot be joined, or if they do not separate the input
    /// from the output; it then names the fewest tensors to add. Also returns the errors of [`Model::network`].
    pub fn with_cut(&self, names: &str) -> Result<(Self, String), GraphError> {
        if !names.contains(',') {
            return Ok((self.clone(), self.network()?.named(names)?.name.clone()));
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
        let refused = |why: String| GraphError::Joint {
            names: names.split(',').map(str::trim).collect::<Vec<_>>().join(", "),
            why,
        };
        check(&tensors).map_err(refused)?;
        let before = ancestors(&analysis, &cut);
        let leaks = leaks(&analysis, &before, &cut)?;
        if !leaks.is_empty() {
            return Err(refused(self.missing(&analysis, &all, &cut, &leaks)?));
        }
        Ok((self.joined(&tensors, &name, &before)?, name))
    }

    /// Returns the network without what [`Model::with_cut`] added.
    ///
    /// # Errors
    /// Returns [`GraphError::Malformed`] if a later change renamed the additional tensors.
    pub fn without_joint_cuts(self) -> Result<Self, GraphError> {
        let mut proto = self.into_proto();
        if let Some(graph) = &mut proto.graph {
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

    /// Returns the network with all tensors of known shape as cuts, so that they can be found by name.
    fn all_tensors(&self, analysis: &Analysis<'_>) -> Result<Network, GraphError> {
        let produced = self.nodes().iter().flat_map(|node| &node.output);
        let data = produced.filter(|name| analysis.kinds.is_data(name));
        let tensors = data.filter_map(|name| info(analysis, name)).map(|info| Cut {
            bytes_per_sample: info.bytes_per_sample(),
            name: info.name,
            dtype: info.dtype,
            shape: info.shape,
            compute_share: 0.0,
            before_head: false,
            modules: Vec::new(),
        });
        let mut cuts: Vec<Cut> = tensors.collect();
        modules::name(analysis, &mut cuts);
        Ok(Network {
            cuts,
            ..self.network_of(analysis)?
        })
    }

    /// Explains which tensors have to be added to `cut`.
    fn missing(
        &self,
        analysis: &Analysis<'_>,
        all: &Network,
        cut: &[&str],
        leaks: &[String],
    ) -> Result<String, GraphError> {
        let input = self.input_name()?;
        let separator = Separator::new(analysis, input, self.output_name()?, cut).fewest(MOST_TENSORS);
        let mut names = separator.unwrap_or_else(|| leaks.to_vec());
        let whole: Vec<&str> = cut
            .iter()
            .copied()
            .chain(names.iter().map(String::as_str))
            .collect();
        let rest = self::leaks(analysis, &ancestors(analysis, &whole), &whole)?;
        names.extend(rest);
        if names.iter().any(|name| name == input) {
            return Ok("later layers also read the network's input".to_owned());
        }
        let title = |name: &String| match all.cut(name) {
            Ok(cut) => format!("`{}`", all.title(cut)),
            Err(_) => format!("`{name}`"),
        };
        let titles: Vec<String> = names.iter().map(title).collect();
        Ok(format!(
            "they do not separate the input from the output; add {}",
            titles.join(", ")
        ))
    }

    /// Inserts the cut between the nodes `before` and the others.
    fn joined(&self, tensors: &[&Cut], name: &str, before: &HashSet<usize>) -> Result<Self, GraphError> {
        let (joint, weights) = joint(tensors, name, self.opset());
        let nodes = self.nodes().iter().enumerate();
        let (frozen, later): (Vec<_>, Vec<_>) = nodes.partition(|(index, _)| before.contains(index));
        let frozen = frozen.into_iter().map(|(_, node)| node.clone());
        let later = later.into_iter().map(|(_, node)| {
            let mut node = node.clone();
            let reads = node.input.iter_mut();
            reads
                .filter(|name| tensors.iter().any(|tensor| tensor.name == **name))
                .for_each(|name| name.insert_str(0, ADDED));
            node
        });
        let mut graph = GraphProto {
            node: frozen.chain(joint).chain(later).collect(),
            ..self.graph().clone()
        };
        graph.initializer.extend(weights);
        self.with_graph(graph)
    }
}

/// Checks that `tensors` can be one tensor.
fn check(tensors: &[&Cut]) -> Result<(), String> {
    if tensors.len() > MOST_TENSORS {
        return Err(format!("a cut has at most {MOST_TENSORS} tensors"));
    }
    match tensors.iter().find(|tensor| tensor.dtype != DType::F32) {
        Some(other) => Err(format!("`{}` is of type {:?}, not f32", other.name, other.dtype)),
        None => Ok(()),
    }
}

/// Returns the nodes that the tensors `cut` are computed by.
fn ancestors(analysis: &Analysis<'_>, cut: &[&str]) -> HashSet<usize> {
    let mut nodes = HashSet::new();
    let mut open = cut.to_vec();
    while let Some(name) = open.pop() {
        if let Some((index, node)) = analysis.producer(name)
            && nodes.insert(index)
        {
            open.extend(crate::read_names(node));
        }
    }
    nodes
}

/// Returns the tensors other than `cut` that cross from the nodes `before` to the others on the path of the data,
/// in the order of execution.
fn leaks(analysis: &Analysis<'_>, before: &HashSet<usize>, cut: &[&str]) -> Result<Vec<String>, GraphError> {
    let mut leaks = Vec::new();
    for index in BTreeSet::from_iter(analysis.data_path(analysis.model.output_name()?, None)) {
        let Some(node) = analysis
            .model
            .nodes()
            .get(index)
            .filter(|_| !before.contains(&index))
        else {
            continue;
        };
        for name in analysis.data_inputs(node) {
            let is_behind = analysis
                .producer(name)
                .is_some_and(|(index, _)| !before.contains(&index));
            // Nodes inside of branches keep reading their tensors.
            let is_divided = cut.contains(&name) && node.input.iter().any(|input| input == name);
            if !is_behind && !is_divided && !leaks.iter().any(|leak| leak == name) {
                leaks.push(name.to_owned());
            }
        }
    }
    Ok(leaks)
}

/// Returns the nodes that join `tensors` and divide them again, and the sizes that these nodes read.
fn joint(tensors: &[&Cut], name: &str, opset: i64) -> (Vec<NodeProto>, Vec<TensorProto>) {
    let added = |what: &str, number: usize| format!("{ADDED}{what}/{name}/{number}");
    let numbers = 0..tensors.len();
    let flat: Vec<String> = numbers.clone().map(|number| added("flat", number)).collect();
    let parts: Vec<String> = numbers.map(|number| added("part", number)).collect();
    let [flat_names, part_names] =
        [&flat, &parts].map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut nodes: Vec<NodeProto> = (tensors.iter().zip(&flat))
        .map(|(tensor, flat)| build::node("Flatten", &[&tensor.name], &[flat]).with([build::int("axis", 1)]))
        .collect();
    let concat = build::node("Concat", &flat_names, &[name]).with([build::int("axis", 1)]);
    nodes.push(concat.named(&format!("{ADDED}{name}")));
    let sizes: Vec<i64> = tensors
        .iter()
        .map(|tensor| tensor.shape.dims().iter().map(|dim| size(*dim)).product())
        .collect();
    let axis = build::int("axis", 1);
    let mut weights = Vec::new();
    nodes.push(if opset < SPLIT_WITH_INPUT {
        build::node("Split", &[name], &part_names).with([axis, build::ints("split", &sizes)])
    } else {
        let lengths = format!("{ADDED}sizes/{name}");
        weights.push(build::integers(&lengths, &sizes));
        build::node("Split", &[name, &lengths], &part_names).with([axis])
    });
    for (tensor, part) in tensors.iter().zip(&parts) {
        let shape = format!("{part}/shape");
        // Zero stands for the batch.
        let row = tensor.shape.dims().iter().map(|dim| size(*dim));
        weights.push(build::integers(
            &shape,
            &std::iter::once(0).chain(row).collect::<Vec<_>>(),
        ));
        nodes.push(build::node(
            "Reshape",
            &[part, &shape],
            &[&format!("{ADDED}{}", tensor.name)],
        ));
    }
    (nodes, weights)
}

fn size(elements: usize) -> i64 {
    i64::try_from(elements).unwrap_or(i64::MAX)
}
