use crate::GraphError;
use crate::onnx::data_type::is_float;
use crate::onnx::{GraphProto, ModelProto, NodeProto, StringStringEntry, TensorProto, ValueInfo};
use frostline_tensor::Tensor;
use std::collections::HashMap;

/// First IR version in which weights need not be listed as inputs. Older networks are converted, because all
/// changes of a network would have to keep the list complete.
const UNLISTED_WEIGHTS: i64 = 4;

/// ONNX model with a graph. The nodes are in the order of execution.
///
/// Clones share the raw data of weights. The raw data is a slice of the bytes from which the model was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    proto: ModelProto,
    graph: GraphProto,
}

impl Model {
    /// Builds a model from its protobuf message, for example one created with [`crate::build`]. Any number of
    /// inputs and outputs is accepted.
    ///
    /// # Errors
    /// Returns [`GraphError::NotOnnx`] if the graph, its outputs, the IR version or the operator sets are
    /// missing. Returns [`GraphError::Malformed`] if a name is produced twice or used before it is produced,
    /// or if the graph has sparse weights or too many nodes.
    pub fn from_proto(mut proto: ModelProto) -> Result<Self, GraphError> {
        let mut graph = proto
            .graph
            .take()
            .ok_or_else(|| not_onnx("the graph is missing; export the network again"))?;
        if proto.ir_version < 1 || proto.opset_import.is_empty() {
            return Err(not_onnx(
                "missing IR version or operator set; export the network again",
            ));
        }
        if graph.output.is_empty() {
            return Err(not_onnx("the output is missing; export the network again"));
        }
        crate::form::check(&graph)?;
        if proto.ir_version < UNLISTED_WEIGHTS {
            let stored = by_name(&graph.initializer);
            graph
                .input
                .retain(|input| !stored.contains_key(input.name.as_str()));
            proto.ir_version = UNLISTED_WEIGHTS;
        }
        Ok(Self { proto, graph })
    }

    /// Converts the model into its protobuf message, including the graph.
    pub fn into_proto(self) -> ModelProto {
        ModelProto {
            graph: Some(self.graph),
            ..self.proto
        }
    }

    /// Returns the message without the graph.
    pub(crate) fn frame(&self) -> &ModelProto {
        &self.proto
    }

    /// Returns a model with `graph` and the other fields of this one, such as operator sets and metadata.
    ///
    /// # Errors
    /// Returns the same errors as [`Model::from_proto`].
    pub fn with_graph(&self, graph: GraphProto) -> Result<Self, GraphError> {
        Self::from_proto(ModelProto {
            graph: Some(graph),
            ..self.proto.clone()
        })
    }

    /// Returns a model without the nodes and weights whose values are neither read nor outputs of the graph.
    #[must_use]
    pub fn without_unread(mut self) -> Self {
        crate::form::drop_unread(&mut self.graph);
        self
    }

    /// Returns a model with `graph`, which may lack nodes.
    pub(crate) fn with_unchecked(&self, graph: GraphProto) -> Self {
        let proto = self.proto.clone();
        Self { proto, graph }
    }

    /// Returns the graph.
    pub fn graph(&self) -> &GraphProto {
        &self.graph
    }

    /// Returns the nodes in the order of execution.
    pub fn nodes(&self) -> &[NodeProto] {
        &self.graph.node
    }

    /// Returns the version of ONNX's standard operator set, or 1 if the model does not import it.
    pub fn opset(&self) -> i64 {
        self.proto
            .opset_import
            .iter()
            .find(|set| matches!(set.domain.as_str(), "" | "ai.onnx"))
            .map_or(1, |set| set.version)
    }

    /// Returns the inputs that the caller must provide. Old files also list initializers as inputs, which
    /// this function skips.
    pub fn inputs(&self) -> impl Iterator<Item = &ValueInfo> {
        let weights = self.initializers();
        let inputs = self.graph.input.iter();
        inputs.filter(move |input| !weights.contains_key(input.name.as_str()))
    }

    /// Returns the outputs.
    pub fn outputs(&self) -> &[ValueInfo] {
        &self.graph.output
    }

    /// Returns the initializer of this name. The search is linear; use [`Model::initializers`] for many
    /// look-ups.
    pub fn initializer(&self, name: &str) -> Option<&TensorProto> {
        self.graph.initializer.iter().find(|weight| weight.name == name)
    }

    /// Returns all initializers by name.
    pub fn initializers(&self) -> HashMap<&str, &TensorProto> {
        by_name(&self.graph.initializer)
    }

    /// Returns the stored tensors by name: the initializers, the values of `Constant` nodes, and the copies of
    /// both by `Identity`, because exporters store equal tensors once.
    pub fn constants(&self) -> HashMap<&str, &TensorProto> {
        stored_tensors(&self.graph, |_, _| false)
    }

    /// Returns the same tensors as [`Self::constants`], and those that are cast from one floating-point type to
    /// another. The types of the returned tensors are the stored ones.
    pub fn constants_of_any_float(&self) -> HashMap<&str, &TensorProto> {
        stored_tensors(&self.graph, casts_floats)
    }

    /// Copies the initializer of this name into a tensor.
    ///
    /// # Errors
    /// Returns [`GraphError::Weight`] if the model does not have the initializer or its data is invalid.
    pub fn weight(&self, name: &str) -> Result<Tensor, GraphError> {
        crate::tensors::from_proto(self.initializer(name).ok_or_else(|| GraphError::Weight {
            name: name.into(),
            why: "the model does not have this initializer".into(),
        })?)
    }

    /// Returns the metadata entry `key`.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        let entry = self.proto.metadata_props.iter().find(|entry| entry.key == key);
        entry.map(|entry| entry.value.as_str())
    }

    /// Removes the metadata entry `key` if it exists.
    pub fn remove_metadata(&mut self, key: &str) {
        self.proto.metadata_props.retain(|entry| entry.key != key);
    }

    /// Sets the metadata entry `key` and replaces an existing one.
    pub fn set_metadata(&mut self, key: &str, value: &str) {
        self.remove_metadata(key);
        self.proto.metadata_props.push(StringStringEntry {
            key: key.into(),
            value: value.into(),
        });
    }
}

/// Returns the stored tensors of a graph and their copies. `copies` returns true for nodes other than `Identity` that
/// copy a tensor.
pub(crate) fn stored_tensors(
    graph: &GraphProto,
    copies: impl Fn(&NodeProto, &TensorProto) -> bool,
) -> HashMap<&str, &TensorProto> {
    let mut stored = by_name(&graph.initializer);
    for node in &graph.node {
        let copied = node.input_name(0).and_then(|name| stored.get(name).copied());
        let tensor = match node.standard_operator() {
            Some("Constant") => node.tensor("value"),
            Some("Identity") => copied,
            _ => copied.filter(|tensor| copies(node, tensor)),
        };
        stored.extend(node.output_name(0).zip(tensor));
    }
    stored
}

/// Returns true if `node` casts a floating-point tensor to another floating-point type.
pub(crate) fn casts_floats(node: &NodeProto, stored: &TensorProto) -> bool {
    node.casts_to_float() && is_float(stored.data_type)
}

fn by_name(weights: &[TensorProto]) -> HashMap<&str, &TensorProto> {
    let named = weights.iter().map(|weight| (weight.name.as_str(), weight));
    named.collect()
}

fn not_onnx(why: &str) -> GraphError {
    GraphError::NotOnnx { why: why.into() }
}
