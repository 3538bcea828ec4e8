//! Adds a classifier head to a network that outputs features.

use crate::onnx::{NodeProto, data_type};
use crate::replace::{every_name, free};
use crate::{GraphError, Model, build};
use frostline_tensor::{DType, Tensor};

impl Model {
    /// Appends a linear layer with a single class to the network. [`Model::replace_head`] then sets the
    /// number of classes. The layer reads features `[features]` directly. It reads the mean of feature maps
    /// `[features, height, width]` over height and width, and the mean of tokens `[tokens, features]` over
    /// the tokens.
    ///
    /// # Errors
    /// Returns [`GraphError::Head`] if the output has another shape or element type, and the errors of
    /// [`Model::network`].
    pub fn with_linear_head(&self) -> Result<Self, GraphError> {
        let output = self.network()?.output;
        let (axes, features): (&[i64], _) = match *output.shape.dims() {
            [features] => (&[], features),
            [_, features] => (&[1], features),
            [features, _, _] => (&[2, 3], features),
            _ => return Err(unsuited(&output.shape.to_string())),
        };
        if output.dtype != DType::F32 {
            return Err(unsuited(&output.dtype.to_string()));
        }
        let mut graph = self.graph().clone();
        let taken = every_name(&graph);
        let pooled = free("head.pooled", &taken);
        let read = if axes.is_empty() { &output.name } else { &pooled };
        if !axes.is_empty() {
            let keep = build::int("keepdims", 0);
            let mean = if self.opset() < 18 {
                build::node("ReduceMean", &[&output.name], &[&pooled]).with([build::ints("axes", axes), keep])
            } else {
                let list = free("head.axes", &taken);
                graph.initializer.push(build::integers(&list, axes));
                build::node("ReduceMean", &[&output.name, &list], &[&pooled]).with([keep])
            };
            graph.node.push(mean);
        }
        let weight = free("head.weight", &taken);
        let bias = free("head.bias", &taken);
        let scores = free("head.scores", &taken);
        for (name, shape) in [(&weight, vec![1, features]), (&bias, vec![1])] {
            let zeros = Tensor::f32(shape.clone(), vec![0.0; shape.iter().product()]);
            let zeros = zeros.map_err(|error| GraphError::Head { why: error.into() })?;
            graph.initializer.push(build::initializer(name, &zeros));
        }
        graph.node.push(NodeProto {
            name: free("head", &taken),
            ..build::node("Gemm", &[read, &weight, &bias], &[&scores]).with([build::int("transB", 1)])
        });
        let axes = [build::Axis::batch(), build::Axis::Fixed(1)];
        graph.output = vec![build::value(&scores, data_type::FLOAT, &axes)];
        self.with_graph(graph)
    }
}

fn unsuited(what: &str) -> GraphError {
    let why = format!(
        "the network's output is {what}; a linear head requires f32 features, feature maps [features, height, width] or tokens [tokens, features]"
    );
    GraphError::Head { why: why.into() }
}
