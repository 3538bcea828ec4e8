//! Moves transpositions across linear layers toward attention, where the layouts of query, key, value and
//! output absorb them. torchvision's attention works with the sequence first, so a transposition precedes its
//! first and follows its last projection.

use super::graph::BATCHES;
use crate::links::Links;
use frostline_graph::build::{integers, node};
use frostline_graph::onnx::{GraphProto, NodeProto, TensorProto};
use frostline_graph::{GraphError, Model, Shapes};
use std::collections::HashMap;

/// Returns the network with transpositions moved across linear layers. A linear layer is a `MatMul` with a
/// matrix, optionally followed by an `Add` of a vector.
///
/// # Errors
/// Returns the errors of [`Model::from_proto`] and [`Model::shapes`].
pub(super) fn transposed_at_attention(model: &Model) -> Result<Model, GraphError> {
    let model = changed(model, Pass::MultiplyWithoutFlattening)?;
    let model = changed(&model, Pass::TransposeBefore)?;
    changed(&model, Pass::TransposeAfter)
}

/// Changes of linear layers.
#[derive(Clone, Copy)]
enum Pass {
    MultiplyWithoutFlattening,
    TransposeBefore,
    TransposeAfter,
}

/// Returns the network with all changes of this pass. Changes that overlap an earlier one are left out.
fn changed(model: &Model, pass: Pass) -> Result<Model, GraphError> {
    let mut edit = Edit {
        links: Links::new(model),
        shapes: model.shapes(BATCHES[0])?,
        others: model.shapes(BATCHES[1])?,
        replaced: HashMap::new(),
        constants: Vec::new(),
    };
    for (index, node) in model.nodes().iter().enumerate() {
        // `None` if the node does not belong to a layer that this pass changes.
        let _: Option<()> = match pass {
            Pass::MultiplyWithoutFlattening => edit.multiply_without_flattening(index, node),
            Pass::TransposeBefore => edit.transpose_before(index, node),
            Pass::TransposeAfter => edit.transpose_after(index, node),
        };
    }
    let graph = edit.graph(model.graph());
    Ok(model.with_graph(graph)?.without_unread())
}

struct Edit<'a> {
    links: Links<'a>,
    shapes: Shapes,
    others: Shapes,
    /// New nodes in place of the node with this index.
    replaced: HashMap<usize, Vec<NodeProto>>,
    constants: Vec<TensorProto>,
}

struct Linear<'a> {
    input: &'a str,
    weight: &'a str,
    bias: Option<&'a str>,
    output: &'a str,
    /// Indices of the `MatMul` and the `Add`.
    nodes: Vec<usize>,
}

impl Linear<'_> {
    /// Returns the nodes of this layer for another input and output.
    fn nodes(&self, input: &str, output: &str) -> Vec<NodeProto> {
        let product = match self.bias {
            Some(_) => format!("{output}/product"),
            None => output.to_owned(),
        };
        let sum = self.bias.map(|bias| node("Add", &[&product, bias], &[output]));
        let product = node("MatMul", &[input, self.weight], &[&product]);
        std::iter::once(product).chain(sum).collect()
    }
}

impl<'a> Edit<'a> {
    fn graph(mut self, graph: &GraphProto) -> GraphProto {
        let nodes = graph.node.iter().enumerate().flat_map(|(index, node)| {
            let replaced = self.replaced.remove(&index);
            replaced.unwrap_or_else(|| vec![node.clone()])
        });
        GraphProto {
            node: nodes.collect(),
            initializer: [graph.initializer.as_slice(), &self.constants].concat(),
            ..graph.clone()
        }
    }

    /// Replaces `nodes`, given in order of execution, by `new` in place of the last one. Keeps all
    /// nodes if one of them is already replaced.
    fn replace(&mut self, nodes: &[usize], new: Vec<NodeProto>) {
        let Some((last, first)) = nodes.split_last() else {
            return;
        };
        if nodes.iter().any(|index| self.replaced.contains_key(index)) {
            return;
        }
        let properties = self.links.node(*last).map(|node| node.metadata_props.clone());
        let properties = properties.unwrap_or_default();
        let new = new.into_iter().map(|node| NodeProto {
            metadata_props: properties.clone(),
            ..node
        });
        self.replaced.insert(*last, new.collect());
        self.replaced
            .extend(first.iter().map(|index| (*index, Vec::new())));
    }

    /// Computes a `Gemm` between two reshapes as a product of a matrix with a tensor of more axes.
    fn multiply_without_flattening(&mut self, index: usize, gemm: &'a NodeProto) -> Option<()> {
        gemm.standard_operator().filter(|name| *name == "Gemm")?;
        let factors = ["alpha", "beta"].map(|name| gemm.float(name).unwrap_or(1.0));
        let plain = gemm.int("transA").unwrap_or(0) == 0 && factors == [1.0, 1.0];
        let flat = gemm.input_name(0)?;
        let product = gemm.output_name(0).filter(|_| plain)?;
        let (before, flatten) = self.links.producer(flat)?;
        let after = self.only_reader(product)?;
        self.only_reader(flat)?;
        let unflatten = self.links.node(after)?;
        let output = unflatten.output_name(0)?;
        let reshapes = [flatten, unflatten]
            .iter()
            .all(|node| node.standard_operator() == Some("Reshape"));
        let [dims, others] = [&self.shapes, &self.others].map(|shapes| shapes.dims(output));
        let (width, rows) = dims?.split_last()?;
        let fits = reshapes && rows.len() > 1 && self.shapes.dims(product)?.last() == Some(width);
        let bias = gemm.input_name(2);
        let vector = bias.is_none_or(|bias| self.axes(bias) == Some(1));
        if !fits || !vector {
            return None;
        }
        let mut target: Vec<i64> = Vec::new();
        for (size, other) in rows.iter().zip(others?) {
            target.push(if size == other {
                i64::try_from(*size).ok()?
            } else {
                -1
            });
        }
        target.push(i64::try_from(*self.shapes.dims(flat)?.last()?).ok()?);
        if target.iter().filter(|size| **size == -1).count() > 1 {
            return None;
        }
        let rows = format!("{output}/rows");
        let shape = format!("{rows}/target");
        self.constants.push(integers(&shape, &target));
        let mut new = vec![node("Reshape", &[flatten.input_name(0)?, &shape], &[&rows])];
        let mut weight = gemm.input_name(1)?.to_owned();
        if gemm.int("transB").unwrap_or(0) != 0 {
            let transposed = format!("{output}/weight");
            new.push(node("Transpose", &[&weight], &[&transposed]));
            weight = transposed;
        }
        let linear = Linear {
            input: &rows,
            weight: &weight,
            bias,
            output,
            nodes: vec![before, index, after],
        };
        new.extend(linear.nodes(&rows, output));
        self.replace(&linear.nodes, new);
        Some(())
    }

    /// Moves a transposition after a linear layer before it if the layer reads an ordered tensor.
    fn transpose_before(&mut self, index: usize, transpose: &'a NodeProto) -> Option<()> {
        let value = self.transposed(transpose)?;
        let linear = self.linear_before(value)?;
        self.only_reader(value)?;
        let (_, producer) = self.links.producer(linear.input)?;
        orders(producer).then_some(())?;
        let output = transpose.output_name(0)?;
        let input = format!("{output}/input");
        let moved = NodeProto {
            input: vec![linear.input.to_owned()],
            output: vec![input.clone()],
            name: input.clone(),
            ..transpose.clone()
        };
        let new = std::iter::once(moved).chain(linear.nodes(&input, output));
        self.replace(&[linear.nodes.as_slice(), &[index]].concat(), new.collect());
        Some(())
    }

    /// Moves a transposition before a linear layer behind it if only nodes that order elements read the layer.
    fn transpose_after(&mut self, index: usize, product: &'a NodeProto) -> Option<()> {
        let linear = self.linear_from(index, product)?;
        let (_, transpose) = self.links.producer(linear.input)?;
        let value = self.transposed(transpose)?;
        let readers = self.links.readers(linear.output).iter();
        if self.links.is_output(linear.output)
            || !readers
                .into_iter()
                .all(|reader| self.links.node(*reader).is_some_and(orders))
        {
            return None;
        }
        let sum = format!("{}/transposed", linear.output);
        let moved = NodeProto {
            input: vec![sum.clone()],
            output: vec![linear.output.to_owned()],
            name: sum.clone(),
            ..transpose.clone()
        };
        let mut new = linear.nodes(value, &sum);
        new.push(moved);
        self.replace(&linear.nodes, new);
        Some(())
    }

    /// Returns the input of a `Transpose` that keeps the last axis.
    fn transposed(&self, node: &'a NodeProto) -> Option<&'a str> {
        node.standard_operator().filter(|name| *name == "Transpose")?;
        let order = node.ints("perm")?;
        let last = i64::try_from(order.len()).ok()? - 1;
        node.input_name(0).filter(|_| order.last() == Some(&last))
    }

    fn linear_before(&self, value: &str) -> Option<Linear<'a>> {
        let (index, node) = self.links.producer(value)?;
        if node.standard_operator()? == "MatMul" {
            return self
                .linear_from(index, node)
                .filter(|linear| linear.output == value);
        }
        let products = node.input.iter().filter_map(|input| self.links.producer(input));
        let mut linears = products.filter_map(|(index, product)| self.linear_from(index, product));
        linears.find(|linear| linear.output == value)
    }

    /// Returns the linear layer that begins with the `MatMul` at this index.
    fn linear_from(&self, index: usize, product: &'a NodeProto) -> Option<Linear<'a>> {
        product.standard_operator().filter(|name| *name == "MatMul")?;
        let input = product.input_name(0)?;
        let weight = product.input_name(1)?;
        if self.axes(weight)? != 2 || self.axes(input)? < 3 {
            return None;
        }
        let output = product.output_name(0)?;
        let linear = Linear {
            input,
            weight,
            bias: None,
            output,
            nodes: vec![index],
        };
        let Some(reader) = self.only_reader(output) else {
            return Some(linear);
        };
        let sum = self.links.node(reader)?;
        if sum.standard_operator() != Some("Add") {
            return Some(linear);
        }
        let bias = sum.input.iter().find(|input| *input != output);
        let bias = bias.map(String::as_str).filter(|bias| self.axes(bias) == Some(1));
        match bias.zip(sum.output_name(0)) {
            Some((bias, output)) => Some(Linear {
                bias: Some(bias),
                output,
                nodes: vec![index, reader],
                ..linear
            }),
            None => Some(linear),
        }
    }

    fn axes(&self, value: &str) -> Option<usize> {
        self.shapes.dims(value).map(<[usize]>::len)
    }

    /// Returns the reader if the value has exactly one and is not an output.
    fn only_reader(&self, value: &str) -> Option<usize> {
        match self.links.readers(value) {
            &[reader] if !self.links.is_output(value) => Some(reader),
            _ => None,
        }
    }
}

/// Returns true for nodes that order the elements of a tensor.
fn orders(node: &NodeProto) -> bool {
    matches!(
        node.standard_operator(),
        Some("Reshape" | "Transpose" | "Squeeze" | "Unsqueeze" | "Flatten" | "Shape")
    )
}
