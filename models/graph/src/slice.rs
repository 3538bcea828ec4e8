//! Extracts the part of a model between two cuts as a separate model.

use crate::analysis::Analysis;
use crate::form::read_names;
use crate::joint_names::is_of;
use crate::kinds::reads_shape;
use crate::network::Network;
use crate::onnx::{GraphProto, ModelProto, NodeProto, ValueInfo};
use crate::reshaping::replace_shape;
use crate::tensor_info::info;
use crate::tensors::code_of;
use crate::{Cut, GraphError, Model, build, functions};
use std::collections::{BTreeMap, HashSet};

impl Model {
    /// Returns the part of the network from `from` (`None` for the input) to `to` (`None` for the output) as
    /// a separate network. It accepts any batch size and contains only the weights, operator sets and
    /// functions that it needs. Exporters' annotations of nodes and files are removed. The same model always
    /// gives the same bytes.
    ///
    /// Shapes of values before `from` are computed from the batch of `from`. A slice that starts after a
    /// `DequantizeLinear` quantizes its input again, which does not change the values and lets engines
    /// compute in integers.
    ///
    /// Joint cuts between `from` and `to` are left out, so that their tensors are not copied.
    ///
    /// # Errors
    /// Returns [`GraphError::UnknownCut`] if a name is neither the input, the output nor a cut,
    /// [`GraphError::Order`] if the slice would be empty, and the errors of [`Model::network`].
    pub fn slice(&self, from: Option<&str>, to: Option<&str>) -> Result<Self, GraphError> {
        let analysis = Analysis::run(self)?;
        let network = self.network_of(&analysis)?;
        let from = from.unwrap_or(&network.input.name);
        let to = to.unwrap_or(&network.output.name);
        let between = between(&network, from, to)?.iter();
        let joints: Vec<&str> = between
            .filter(|cut| cut.is_joint() && cut.name != to)
            .map(|cut| cut.name.as_str())
            .collect();
        if self
            .nodes()
            .iter()
            .any(|node| joints.iter().any(|cut| is_of(node, cut)))
        {
            return self.without_cuts(&joints)?.slice(Some(from), Some(to));
        }
        SliceContent::between(&analysis, from, to)?.into_model(&analysis, from, to)
    }

    /// Returns the layers up to the cut `to` like [`Model::slice`], with the joint cuts between.
    ///
    /// # Errors
    /// Returns the same errors as [`Model::slice`].
    pub fn layers_with_splits(&self, to: &str) -> Result<Self, GraphError> {
        let analysis = Analysis::run(self)?;
        let network = self.network_of(&analysis)?;
        let from = &network.input.name;
        between(&network, from, to)?;
        SliceContent::between(&analysis, from, to)?.into_model(&analysis, from, to)
    }
}

/// Returns the cuts after `from` and before `to`.
fn between<'a>(network: &'a Network, from: &str, to: &str) -> Result<&'a [Cut], GraphError> {
    let [start, end] = [from, to].map(|name| match name {
        _ if name == network.input.name => Ok(0),
        _ if name == network.output.name => Ok(usize::MAX),
        _ => network
            .cut(name)
            .map(|cut| 1 + network.cuts.iter().position(|other| other == cut).unwrap_or(0)),
    });
    let start = start?;
    let end = end?;
    if start >= end {
        return Err(GraphError::Order {
            from: from.into(),
            to: to.into(),
        });
    }
    let last = network.cuts.len().min(end - 1);
    Ok(network.cuts.get(start..last).unwrap_or_default())
}

/// Nodes and additional weights of a slice. The keys are indices in the original model.
struct SliceContent {
    nodes: BTreeMap<usize, Vec<NodeProto>>,
    weights: Vec<crate::onnx::TensorProto>,
}

impl SliceContent {
    /// Collects the nodes that carry data from `from` to `to`, including nodes that compute shapes and
    /// constants.
    fn between(analysis: &Analysis<'_>, from: &str, to: &str) -> Result<Self, GraphError> {
        let path = analysis.data_path(to, Some(from));
        let nodes = analysis.model.nodes();
        let on_path: HashSet<&str> = path
            .iter()
            .filter_map(|&index| nodes.get(index))
            .flat_map(|node| &node.output)
            .map(String::as_str)
            .chain([from])
            .collect();
        let mut part = Self {
            nodes: BTreeMap::new(),
            weights: Vec::new(),
        };
        let mut open: Vec<&str> = vec![to];
        while let Some(name) = open.pop() {
            let Some((index, node)) = analysis.links.producer(name) else {
                continue;
            };
            if name == from || part.nodes.contains_key(&index) {
                continue;
            }
            if reads_shape(node)
                && node
                    .input_name(0)
                    .is_some_and(|name| analysis.kinds.is_data(name) && !on_path.contains(name))
            {
                let (replacement, weights) = replace_shape(analysis, from, node)?;
                part.nodes.insert(index, replacement);
                part.weights.extend(weights);
                continue;
            }
            part.nodes.insert(index, vec![plain(node)]);
            open.extend(read_names(node));
        }
        part.requantize(analysis, from);
        Ok(part)
    }

    /// Quantizes `from` again if the original network does.
    fn requantize(&mut self, analysis: &Analysis<'_>, from: &str) {
        let dequantize = producer_with(analysis, from, "DequantizeLinear");
        let quantize =
            dequantize.and_then(|node| producer_with(analysis, node.input_name(0)?, "QuantizeLinear"));
        let (Some(dequantize), Some(quantize)) = (dequantize, quantize) else {
            return;
        };
        let integers = format!("{from}/integers");
        let dequantized = format!("{from}/dequantized");
        for node in self.nodes.values_mut().flatten() {
            let reads = node.input.iter_mut().filter(|name| *name == from);
            reads.for_each(|name| name.clone_from(&dequantized));
        }
        let again = vec![
            renamed(quantize, from, &integers),
            renamed(dequantize, &integers, &dequantized),
        ];
        if let Some((producer, _)) = analysis.links.producer(from) {
            self.nodes.insert(producer, again);
        }
    }

    fn into_model(mut self, analysis: &Analysis<'_>, from: &str, to: &str) -> Result<Model, GraphError> {
        let node: Vec<NodeProto> = self.nodes.into_values().flatten().collect();
        let wanted: HashSet<&str> = node.iter().flat_map(read_names).chain([to]).collect();
        let whole = analysis.model.graph();
        let mut initializer: Vec<_> = whole
            .initializer
            .iter()
            .filter(|weight| wanted.contains(weight.name.as_str()))
            .cloned()
            .collect();
        self.weights.sort_by(|a, b| a.name.cmp(&b.name));
        initializer.extend(
            self.weights
                .into_iter()
                .filter(|weight| wanted.contains(weight.name.as_str())),
        );
        let graph = GraphProto {
            name: whole.name.clone(),
            input: vec![end(analysis, from)],
            output: vec![end(analysis, to)],
            initializer,
            ..GraphProto::default()
        };
        let frame = analysis.model.frame();
        let functions = functions::needed(&node, &frame.functions)?;
        let opset_import = functions::opsets(&node, &functions, &frame.opset_import);
        let functions = functions.into_iter().map(|function| function.bytes).collect();
        Model::from_proto(ModelProto {
            ir_version: frame.ir_version,
            opset_import,
            producer_name: "frostline".into(),
            functions,
            graph: Some(GraphProto { node, ..graph }),
            ..ModelProto::default()
        })
    }
}

/// Returns the node that produces `name` if it has this operator.
fn producer_with<'a>(analysis: &Analysis<'a>, name: &str, operator: &str) -> Option<&'a NodeProto> {
    let (_, node) = analysis.links.producer(name)?;
    (node.standard_operator() == Some(operator)).then_some(node)
}

/// Returns a copy of `node` with another first input and the only output `output`.
fn renamed(node: &NodeProto, input: &str, output: &str) -> NodeProto {
    let mut node = plain(node).named(output);
    node.input.splice(..1, [input.to_owned()]);
    node.output = vec![output.to_owned()];
    node
}

/// Returns a node without exporters' annotations, such as source paths and stack traces.
fn plain(node: &NodeProto) -> NodeProto {
    NodeProto {
        doc_string: String::new(),
        metadata_props: Vec::new(),
        device_configurations: Vec::new(),
        ..node.clone()
    }
}

/// Describes an input or output of the slice, with an open batch axis. If the shape is unknown, it uses the
/// declaration of the file.
fn end(analysis: &Analysis<'_>, name: &str) -> ValueInfo {
    if let Some(info) = info(analysis, name) {
        let row = info.shape.dims().iter().map(|&size| build::Axis::Fixed(size));
        let axes: Vec<build::Axis> = std::iter::once(build::Axis::batch()).chain(row).collect();
        return build::value(name, code_of(info.dtype), &axes);
    }
    let graph = analysis.model.graph();
    let declared = graph
        .input
        .iter()
        .chain(&graph.output)
        .find(|value| value.name == name);
    let r#type = declared.and_then(|value| value.r#type.clone());
    ValueInfo {
        name: name.into(),
        r#type,
        ..ValueInfo::default()
    }
}
