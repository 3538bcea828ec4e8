//! Moves transpositions across linear layers toward attention, where the layouts of query, key, value and
//! output absorb them. torchvision's attention works with the sequence first, so a transposition precedes its
//! first and follows its last projection.

use super::graph::AttentionGraph;
use frostline_graph::build::{integers, node};
use frostline_graph::onnx::NodeProto;
use frostline_graph::{GraphChanges, GraphError, Model};

/// Returns the network with transpositions moved across linear layers. A linear layer is a `MatMul` with a
/// matrix, optionally followed by an `Add` of a vector.
///
/// # Errors
/// Returns the errors of [`Model::from_proto`] and [`Model::shapes`].
pub(super) fn transposed_at_attention(model: &Model) -> Result<Model, GraphError> {
    let model = changed(model, LinearPass::MultiplyWithoutFlattening)?;
    let model = changed(&model, LinearPass::TransposeBefore)?;
    changed(&model, LinearPass::TransposeAfter)
}

/// Changes of linear layers.
#[derive(Clone, Copy)]
enum LinearPass {
    MultiplyWithoutFlattening,
    TransposeBefore,
    TransposeAfter,
}

/// Returns the network with all changes of this pass. Changes that overlap an earlier one are left out.
fn changed(model: &Model, pass: LinearPass) -> Result<Model, GraphError> {
    let mut edit = LinearEdit {
        network: AttentionGraph::new(model)?,
        changes: GraphChanges::default(),
    };
    for (index, node) in model.nodes().iter().enumerate() {
        // `None` if the node does not belong to a layer that this pass changes.
        let _: Option<()> = match pass {
            LinearPass::MultiplyWithoutFlattening => edit.multiply_without_flattening(index, node),
            LinearPass::TransposeBefore => edit.transpose_before(index, node),
            LinearPass::TransposeAfter => edit.transpose_after(index, node),
        };
    }
    let graph = edit.changes.applied_to(model.graph());
    Ok(model.with_graph(graph)?.without_unread())
}

struct LinearEdit<'a> {
    network: AttentionGraph<'a>,
    changes: GraphChanges,
}

struct LinearLayer<'a> {
    input: &'a str,
    weight: &'a str,
    bias: Option<&'a str>,
    output: &'a str,
    /// Indices of the `MatMul` and the `Add`.
    nodes: Vec<usize>,
}

impl LinearLayer<'_> {
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

impl<'a> LinearEdit<'a> {
    /// Replaces `nodes`, given in order of execution, by `new` in place of the last one. Keeps all
    /// nodes if one of them is already replaced.
    fn replace(&mut self, nodes: &[usize], new: Vec<NodeProto>) {
        let overlaps = nodes.iter().any(|index| self.changes.contains(*index));
        if let Some(last) = nodes.last().filter(|_| !overlaps)
            && let Some(original) = self.network.links.node(*last)
        {
            self.changes.replace(*last, original, new);
            self.changes.remove(nodes.iter().copied());
        }
    }

    /// Computes a `Gemm` between two reshapes as a product of a matrix with a tensor of more axes.
    fn multiply_without_flattening(&mut self, index: usize, gemm: &'a NodeProto) -> Option<()> {
        gemm.standard_operator().filter(|name| *name == "Gemm")?;
        let factors = ["alpha", "beta"].map(|name| gemm.float(name).unwrap_or(1.0));
        let plain = gemm.int("transA").unwrap_or(0) == 0 && factors == [1.0, 1.0];
        let flat = gemm.input_name(0)?;
        let product = gemm.output_name(0).filter(|_| plain)?;
        let (before, flatten) = self.network.links.producer(flat)?;
        let after = self.network.links.only_reader(product)?;
        self.network.links.only_reader(flat)?;
        let unflatten = self.network.links.node(after)?;
        let output = unflatten.output_name(0)?;
        let reshapes = [flatten, unflatten]
            .iter()
            .all(|node| node.standard_operator() == Some("Reshape"));
        let (width, rows) = self.network.dims(output)?.split_last()?;
        let fits = reshapes && rows.len() > 1 && self.network.dims(product)?.last() == Some(width);
        let bias = gemm.input_name(2);
        let vector = bias.is_none_or(|bias| self.axes(bias) == Some(1));
        if !fits || !vector {
            return None;
        }
        let mut target = self.network.target(output)?;
        *target.last_mut()? = i64::try_from(*self.network.dims(flat)?.last()?).ok()?;
        if target.iter().filter(|size| **size == -1).count() > 1 {
            return None;
        }
        let rows = format!("{output}/rows");
        let shape = format!("{rows}/target");
        self.changes.constants.push(integers(&shape, &target));
        let mut new = vec![node("Reshape", &[flatten.input_name(0)?, &shape], &[&rows])];
        let mut weight = gemm.input_name(1)?.to_owned();
        if gemm.int("transB").unwrap_or(0) != 0 {
            let transposed = format!("{output}/weight");
            new.push(node("Transpose", &[&weight], &[&transposed]));
            weight = transposed;
        }
        let linear = LinearLayer {
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
        self.network.links.only_reader(value)?;
        let (_, producer) = self.network.links.producer(linear.input)?;
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
        let (_, transpose) = self.network.links.producer(linear.input)?;
        let value = self.transposed(transpose)?;
        let readers = self.network.links.readers(linear.output).iter();
        if self.network.links.is_output(linear.output)
            || !readers
                .into_iter()
                .all(|reader| self.network.links.node(*reader).is_some_and(orders))
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

    fn linear_before(&self, value: &str) -> Option<LinearLayer<'a>> {
        let (index, node) = self.network.links.producer(value)?;
        if node.standard_operator()? == "MatMul" {
            return self
                .linear_from(index, node)
                .filter(|linear| linear.output == value);
        }
        let products = node
            .input
            .iter()
            .filter_map(|input| self.network.links.producer(input));
        let mut linears = products.filter_map(|(index, product)| self.linear_from(index, product));
        linears.find(|linear| linear.output == value)
    }

    /// Returns the linear layer that begins with the `MatMul` at this index.
    fn linear_from(&self, index: usize, product: &'a NodeProto) -> Option<LinearLayer<'a>> {
        product.standard_operator().filter(|name| *name == "MatMul")?;
        let input = product.input_name(0)?;
        let weight = product.input_name(1)?;
        if self.axes(weight)? != 2 || self.axes(input)? < 3 {
            return None;
        }
        let output = product.output_name(0)?;
        let linear = LinearLayer {
            input,
            weight,
            bias: None,
            output,
            nodes: vec![index],
        };
        let Some(reader) = self.network.links.only_reader(output) else {
            return Some(linear);
        };
        let sum = self.network.links.node(reader)?;
        if sum.standard_operator() != Some("Add") {
            return Some(linear);
        }
        let bias = sum.input.iter().find(|input| *input != output);
        let bias = bias.map(String::as_str).filter(|bias| self.axes(bias) == Some(1));
        match bias.zip(sum.output_name(0)) {
            Some((bias, output)) => Some(LinearLayer {
                bias: Some(bias),
                output,
                nodes: vec![index, reader],
                ..linear
            }),
            None => Some(linear),
        }
    }

    fn axes(&self, value: &str) -> Option<usize> {
        self.network.dims(value).map(<[usize]>::len)
    }
}

/// Returns true for nodes that order the elements of a tensor.
fn orders(node: &NodeProto) -> bool {
    matches!(
        node.standard_operator(),
        Some("Reshape" | "Transpose" | "Squeeze" | "Unsqueeze" | "Flatten" | "Shape")
    )
}
