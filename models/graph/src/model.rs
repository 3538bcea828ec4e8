use crate::GraphError;
use crate::onnx::{
    GraphProto, ModelProto, NodeProto, OperatorSetId, StringStringEntry, TensorProto, ValueInfo,
};
use frostline_tensor::Tensor;
use std::collections::HashMap;

/// An ONNX network: a graph, always present and with its nodes in order of execution, and what surrounds it.
///
/// Cloning is cheap: weights are shared slices of the bytes they were read from.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    proto: ModelProto,
    graph: GraphProto,
}

impl Model {
    /// A model from its messages, as [`crate::build`] makes them: any number of inputs and outputs.
    ///
    /// # Errors
    /// [`GraphError::NotOnnx`] without a graph or an operator set, [`GraphError::Malformed`] when a name is produced twice or used
    /// before it is produced.
    pub fn from_proto(mut proto: ModelProto) -> Result<Self, GraphError> {
        let not_onnx = |why: &str| GraphError::NotOnnx { why: why.into() };
        let graph = proto.graph.take().ok_or_else(|| not_onnx("it holds no graph"))?;
        if proto.ir_version < 1 || proto.opset_import.is_empty() {
            return Err(not_onnx("it names no IR version or operator set"));
        }
        if graph.output.is_empty() {
            return Err(not_onnx("its graph has no output"));
        }
        crate::form::check(&graph)?;
        Ok(Self { proto, graph })
    }

    /// The messages, graph included.
    pub fn into_proto(self) -> ModelProto {
        ModelProto {
            graph: Some(self.graph),
            ..self.proto
        }
    }

    /// All but the graph.
    pub(crate) fn frame(&self) -> &ModelProto {
        &self.proto
    }

    /// The same surroundings, such as the operators' version, around another graph.
    ///
    /// # Errors
    /// As [`Model::from_proto`].
    pub fn with_graph(&self, graph: GraphProto) -> Result<Self, GraphError> {
        Self::from_proto(ModelProto {
            graph: Some(graph),
            ..self.proto.clone()
        })
    }

    /// The same model with the ends and weights of `graph` and no nodes yet, for building one up.
    pub(crate) fn without_nodes(&self, graph: &GraphProto) -> Self {
        let graph = GraphProto {
            node: Vec::new(),
            ..graph.clone()
        };
        Self {
            proto: self.proto.clone(),
            graph,
        }
    }

    /// The graph.
    pub fn graph(&self) -> &GraphProto {
        &self.graph
    }

    /// The nodes, in order of execution.
    pub fn nodes(&self) -> &[NodeProto] {
        &self.graph.node
    }

    /// The version of ONNX's own operators.
    pub fn opset(&self) -> i64 {
        let own = |set: &&OperatorSetId| matches!(set.domain.as_str(), "" | "ai.onnx");
        self.proto
            .opset_import
            .iter()
            .find(own)
            .map_or(1, |set| set.version)
    }

    /// The real inputs: old files list initializers among them.
    pub fn inputs(&self) -> impl Iterator<Item = &ValueInfo> {
        let weights: std::collections::HashSet<&str> = self
            .graph
            .initializer
            .iter()
            .map(|weight| weight.name.as_str())
            .collect();
        self.graph
            .input
            .iter()
            .filter(move |input| !weights.contains(input.name.as_str()))
    }

    /// The outputs.
    pub fn outputs(&self) -> &[ValueInfo] {
        &self.graph.output
    }

    /// The initializer of this name. Walks the list; for many look-ups use [`Model::initializers`].
    pub fn initializer(&self, name: &str) -> Option<&TensorProto> {
        self.graph.initializer.iter().find(|weight| weight.name == name)
    }

    /// All initializers by name.
    pub fn initializers(&self) -> HashMap<&str, &TensorProto> {
        self.graph
            .initializer
            .iter()
            .map(|weight| (weight.name.as_str(), weight))
            .collect()
    }

    /// The initializer of this name as a tensor of its own.
    ///
    /// # Errors
    /// [`GraphError::Weight`] when there is none, or its data is broken.
    pub fn weight(&self, name: &str) -> Result<Tensor, GraphError> {
        let missing = || GraphError::Weight {
            name: name.into(),
            why: "the model has no such initializer".into(),
        };
        crate::tensors::from_proto(self.initializer(name).ok_or_else(missing)?)
    }

    /// The metadata entry `key`.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        let entry = self.proto.metadata_props.iter().find(|entry| entry.key == key);
        entry.map(|entry| entry.value.as_str())
    }

    /// Takes away the metadata entry `key`, if there is one.
    pub fn remove_metadata(&mut self, key: &str) {
        self.proto.metadata_props.retain(|entry| entry.key != key);
    }

    /// Sets the metadata entry `key`, replacing an older one.
    pub fn set_metadata(&mut self, key: &str, value: &str) {
        self.remove_metadata(key);
        self.proto.metadata_props.push(StringStringEntry {
            key: key.into(),
            value: value.into(),
        });
    }
}
