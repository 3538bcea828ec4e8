//! Joint cuts at which the frozen layers can be split, see `docs/joint-cuts.md`.

use crate::analysis::Analysis;
use crate::cost::PRODUCTS;
use crate::division::Division;
use crate::joint::is_convertible;
use crate::joint_names::{MOST_TENSORS, is_of};
use crate::network::Network;
use crate::onnx::NodeProto;
use crate::onnx::data_type::is_float;
use crate::repeat::Repeated;
use crate::separator::{Separator, UNBOUNDED, bytes};
use crate::sweep::inside_quantization;
use crate::{Effort, GraphError, Model};
use frostline_tensor::DType;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Maximum number of joint cuts in a network, which is also the maximum number of measured candidates.
const MOST_SPLITS: usize = 24;

/// Maximum number of bytes in the name of a joint cut. The wire format and hosts accept names of up to 1,024 bytes,
/// and the names of additional nodes are longer.
const MOST_NAME_BYTES: usize = 900;

/// Number of operators with multiply-adds in the largest usual block: a transformer layer has eight matrix products.
const BLOCK: usize = 8;

impl Model {
    /// Returns the network with additional joint cuts before the cut `freeze`, at which the frozen layers can be split.
    /// The network computes the same as before, and [`Model::without_joints`] removes the cuts.
    ///
    /// If `freeze` is a joint cut, the cuts are added after the last single-tensor cut before it. If it is a single
    /// tensor, they are added only if no single-tensor cut of type `f32` is before it. Otherwise, the network is returned
    /// unchanged, as are networks with quantized activations. Up to 24 cuts with up to 8 tensors each are added.
    ///
    /// # Errors
    /// Returns [`GraphError::UnknownCut`] if `freeze` is neither the input nor a cut, and the errors of [`Model::network`].
    pub fn with_splits(&self, freeze: &str) -> Result<Self, GraphError> {
        let is_joint = self.nodes().iter().any(|node| is_of(node, freeze));
        let base = match is_joint {
            true => self.without_cuts(&[freeze])?,
            false => self.clone(),
        };
        let analysis = Analysis::run(&base)?;
        let network = base.network_of(&analysis)?;
        let ends: Vec<&str> = match is_joint {
            true => freeze.split(',').collect(),
            false if freeze == network.input.name => return Ok(base),
            false => vec![&network.cut(freeze)?.name],
        };
        let frozen = Division::new(&analysis, &ends);
        let last = last_cut(&frozen, &network);
        if last.is_some() && !is_joint {
            return Ok(base);
        }
        let found = candidates(&frozen, last)?;
        let restoring = base.joint_split().map(|split| split.nodes).unwrap_or_default();
        let mut divisions: Vec<Division<'_>> = Vec::new();
        for cut in &found {
            let division = Division::new(&analysis, cut);
            let computes = !division.before.is_subset(&restoring);
            let nested = divisions.last().is_none_or(|last| division.is_after(last));
            if computes && nested && frozen.is_after(&division) && division.leaks()?.is_empty() {
                divisions.push(division);
            }
        }
        if divisions.is_empty() {
            return Ok(self.clone());
        }
        let count = divisions.len();
        let mut index = 0;
        divisions.retain(|_| {
            index += 1;
            // Evenly spaced, with the last one.
            count <= MOST_SPLITS || index * MOST_SPLITS / count > (index - 1) * MOST_SPLITS / count
        });
        if is_joint {
            divisions.push(frozen);
        }
        base.joined(&divisions)
    }
}

/// Returns the index of the node that produces the last single-tensor cut before the freeze cut.
fn last_cut(frozen: &Division<'_>, network: &Network) -> Option<usize> {
    let cuts = network.cuts.iter().filter(|cut| cut.dtype == DType::F32);
    let producers = cuts.filter_map(|cut| {
        let (index, _) = frozen.analysis.links.producer(&cut.name)?;
        let is_before = frozen.before.contains(&index) && !frozen.cut.contains(&cut.name.as_str());
        is_before.then_some(index)
    });
    producers.max()
}

/// Returns the joint cuts before the freeze cut in the order of execution, one before each operator with
/// multiply-adds after the node `start`. Of the tensors that are live before this operator or produced before the next
/// one, a cut contains those with the fewest bytes that separate the freeze cut from the tensors produced so far. Cuts
/// inside a block are left out.
fn candidates<'a>(frozen: &Division<'a>, start: Option<usize>) -> Result<Vec<Vec<&'a str>>, GraphError> {
    let analysis = frozen.analysis;
    let model = analysis.model;
    let path: HashSet<usize> = frozen
        .cut
        .iter()
        .flat_map(|end| analysis.data_path(end, None))
        .collect();
    // Parts of a joint cut are not quantized again, which would change the values of later layers.
    if !inside_quantization(model, model.input_name()?).is_empty() {
        return Ok(Vec::new());
    }
    let mut graph = Separator::new(analysis, &path, |name| Some(capacity(analysis, name)))?;
    for end in frozen.cut {
        graph.end_at(end);
    }
    let path = BTreeSet::from_iter(path);
    let last_readers = last_readers(analysis, &path);
    let integers = integers(analysis, &path);
    let repeated = Repeated::new(analysis, &frozen.before, &integers);
    let products = products(analysis, &path);
    let mut done = 0;
    let mut cuts: Vec<Vec<&str>> = Vec::new();
    for (place, boundary) in products.iter().enumerate() {
        for node in path
            .range(done..*boundary)
            .filter(|index| !repeated.contains(**index))
        {
            let outputs = analysis.links.node(*node).map_or(&[][..], |node| &node.output);
            outputs.iter().for_each(|name| graph.compute(name));
        }
        done = *boundary;
        let next = products.get(place + 1).copied().unwrap_or(usize::MAX);
        let mut near = graph.clone();
        let live = last_readers.iter().filter(|(_, reader)| **reader >= next);
        live.for_each(|(name, _)| near.end_at(name));
        let is_between = start.is_none_or(|start| *boundary > start);
        cuts.extend(near.fewest(MOST_TENSORS).filter(|_| is_between));
    }
    cuts.retain(|cut| cut != frozen.cut);
    if frozen.cut.len() > 1 {
        cuts.push(frozen.cut.to_vec());
    }
    Ok(between_blocks(&cuts, frozen.cut))
}

/// Returns the last reader of each tensor among the nodes of `path`.
fn last_readers<'a>(analysis: &Analysis<'a>, path: &BTreeSet<usize>) -> HashMap<&'a str, usize> {
    let mut readers = HashMap::new();
    for index in path {
        let node = analysis.links.node(*index).into_iter();
        let inputs = node.flat_map(|node| analysis.data_inputs(node));
        readers.extend(inputs.map(|name| (name, *index)));
    }
    readers
}

/// Returns the nodes of `path` with multiply-adds.
fn products(analysis: &Analysis<'_>, path: &BTreeSet<usize>) -> Vec<usize> {
    let is_product = |index: &usize| {
        let operator = analysis.links.node(*index).and_then(NodeProto::standard_operator);
        operator.is_some_and(|operator| PRODUCTS.contains(&operator))
    };
    path.iter().copied().filter(is_product).collect()
}

/// Returns the joint cuts of `cuts` whose names are valid, except `freeze`, repeated cuts and those inside a block, which
/// are followed by a cut with fewer tensors.
fn between_blocks<'a>(cuts: &[Vec<&'a str>], freeze: &[&str]) -> Vec<Vec<&'a str>> {
    let mut found: Vec<Vec<&str>> = Vec::new();
    for (place, cut) in cuts.iter().enumerate() {
        let later = cuts.iter().skip(place + 1).take(BLOCK);
        let is_inside = later.map(Vec::len).any(|count| count < cut.len());
        if (2..=MOST_TENSORS).contains(&cut.len())
            && cut.join(",").len() <= MOST_NAME_BYTES
            && cut != freeze
            && found.last() != Some(cut)
            && !is_inside
        {
            found.push(cut.clone());
        }
    }
    found
}

/// Returns the capacity of a tensor for the smallest separator. Of tensors with the same size, the output of an
/// activation function is preferred to its input.
fn capacity(analysis: &Analysis<'_>, name: &str) -> u64 {
    let links = &analysis.links;
    let Some(bytes) = bytes(analysis, name).filter(|_| is_convertible(analysis, name)) else {
        return UNBOUNDED;
    };
    let producer = links.producer(name).map(|(_, node)| node.effort());
    let reader = links.only_reader(name).and_then(|index| links.node(index));
    let is_activated =
        producer == Some(Effort::Computing) && reader.is_some_and(|node| node.effort() == Effort::Passing);
    2 * bytes + u64::from(is_activated)
}

/// Returns the integers and booleans that are computed from floating-point numbers. Nodes that only read these can be
/// repeated after a cut.
fn integers<'a>(analysis: &Analysis<'a>, path: &BTreeSet<usize>) -> Vec<&'a str> {
    let is_number = |name: &str| is_float(analysis.probes.data_type(name));
    let nodes = analysis.model.nodes().iter().enumerate();
    let nodes =
        nodes.filter(|(index, node)| path.contains(index) && analysis.data_inputs(node).any(is_number));
    let outputs = nodes.flat_map(|(_, node)| &node.output).map(String::as_str);
    outputs.filter(|name| !is_number(name)).collect()
}
