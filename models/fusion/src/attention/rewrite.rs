use super::graph::{AttentionGraph, DOMAIN};
use super::pattern::Attention;
use super::sources::{InputSource, permutation};
use crate::layout::{AxisLayout, COPY, LayoutStep, RESHAPE};
use frostline_graph::GraphChanges;
use frostline_graph::build::{float, int, integers, ints, node};
use frostline_graph::onnx::{NodeProto, TensorProto};

/// Replacement of attentions.
#[derive(Default)]
pub(super) struct AttentionRewrite {
    /// Number of replaced attentions.
    pub(super) count: usize,
    pub(super) changes: GraphChanges,
}

struct End<'a> {
    value: &'a str,
    layout: AxisLayout,
    /// Index of the node that computes the value in the original graph.
    node: usize,
}

struct Nodes<'r> {
    prefix: String,
    nodes: Vec<NodeProto>,
    constants: &'r mut Vec<TensorProto>,
}

impl AttentionRewrite {
    /// Replaces an attention, and the nodes after it that only order its elements.
    pub(super) fn replace(&mut self, graph: &AttentionGraph<'_>, attention: &Attention<'_>) {
        let Some(name) = attention.product.output_name(0) else {
            return;
        };
        let mut ends = vec![End {
            value: name,
            layout: attention.layout.clone(),
            node: attention.index,
        }];
        let mut costs = vec![0];
        while let Some((end, cost)) = ends.last().and_then(|last| graph.after(last)) {
            ends.push(end);
            costs.push(cost);
        }
        let mut after = 0;
        let mut best = (u32::MAX, 0);
        for (place, end) in ends.iter().enumerate().rev() {
            let steps = attention.fused.steps(&end.layout);
            let total = after + steps.iter().map(LayoutStep::cost).sum::<u32>();
            if total < best.0 {
                best = (total, place);
            }
            after += costs.get(place).copied().unwrap_or(0);
        }
        ends.truncate(best.1 + 1);
        let Some(end) = ends.pop() else {
            return;
        };
        let mut nodes = Nodes {
            prefix: format!("{name}/attention"),
            nodes: Vec::new(),
            constants: &mut self.changes.constants,
        };
        let Some(fused) = nodes.fuse(attention, &end) else {
            return;
        };
        // Nodes that read the shape of a replaced value read the shape of a view.
        let mut views: Vec<(usize, String)> = Vec::new();
        for replaced in &ends {
            let readers = graph.links.readers(replaced.value).iter();
            let shapes = readers.filter(|reader| graph.reads_shape(**reader));
            let shapes: Vec<usize> = shapes.copied().collect();
            if shapes.is_empty() {
                continue;
            }
            let view = format!("{}/shape", replaced.value);
            nodes.step(&LayoutStep::Reshape(replaced.layout.target()), &fused, &view);
            views.extend(shapes.into_iter().map(|reader| (reader, view.clone())));
        }
        let new = nodes.nodes;
        self.changes.replace(attention.index, attention.product, new);
        self.changes.remove(ends.iter().chain([&end]).map(|end| end.node));
        for (index, view) in views {
            if let Some(reader) = graph.links.node(index) {
                let mut redirected = reader.clone();
                redirected.input = vec![view];
                self.changes.replace(index, reader, [redirected]);
            }
        }
        self.count += 1;
    }
}

impl<'a> AttentionGraph<'a> {
    /// Returns the value computed from `end` by a node that only orders its elements, and the cost of that
    /// node. Returns `None` if another node reads the elements of `end`.
    fn after(&self, end: &End<'a>) -> Option<(End<'a>, u32)> {
        if self.links.is_output(end.value) {
            return None;
        }
        let readers = self.links.readers(end.value).iter();
        let mut readers = readers.filter(|reader| !self.reads_shape(**reader));
        let index = *readers.next().filter(|_| readers.next().is_none())?;
        let node = self.links.node(index)?;
        let value = node.output_name(0)?;
        if node.input_name(0) != Some(end.value) {
            return None;
        }
        let dims = self.dims(value)?;
        let (layout, cost) = match node.standard_operator()? {
            "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten" => (end.layout.regrouped(dims)?, RESHAPE),
            "Transpose" => (end.layout.transposed(&permutation(node, dims.len())?)?, COPY),
            _ => return None,
        };
        let end = End {
            value,
            layout,
            node: index,
        };
        Some((end, cost))
    }

    fn reads_shape(&self, index: usize) -> bool {
        let operator = self.links.node(index).and_then(NodeProto::standard_operator);
        matches!(operator, Some("Shape"))
    }
}

impl Nodes<'_> {
    /// Adds the fused operator and everything from its sources to `end`. Returns the name of the operator's
    /// output.
    fn fuse(&mut self, attention: &Attention<'_>, end: &End<'_>) -> Option<String> {
        let query = self.read("query", &attention.query)?;
        let key = self.read("key", &attention.key)?;
        let value = self.read("value", &attention.value)?;
        let mut inputs = vec![query.as_str(), &key, &value];
        let bias = match &attention.bias {
            Some((bias, Some(target))) => {
                let reshaped = format!("{}/bias", self.prefix);
                self.step(&LayoutStep::Reshape(target.clone()), bias, &reshaped);
                Some(reshaped)
            }
            Some((bias, None)) => Some((*bias).to_owned()),
            None => None,
        };
        if let Some(bias) = &bias {
            // The inputs in between are the bias of the projections and a mask of padding.
            inputs.extend(["", "", bias]);
        }
        let steps = attention.fused.steps(&end.layout);
        let fused = match steps.is_empty() {
            true => end.value.to_owned(),
            false => format!("{}/output", self.prefix),
        };
        let heads = i64::try_from(attention.heads).ok()?;
        let operator = node("MultiHeadAttention", &inputs, &[&fused]);
        let operator = operator.with([int("num_heads", heads), float("scale", attention.scale)]);
        self.nodes.push(NodeProto {
            domain: DOMAIN.into(),
            ..operator
        });
        self.steps(&steps, &fused, end.value);
        Some(fused)
    }

    /// Adds the nodes that read an input of the fused operator from its source. Returns the name of the input.
    fn read(&mut self, role: &str, source: &InputSource<'_>) -> Option<String> {
        let access = source.access()?;
        let name = format!("{}/{role}", self.prefix);
        let mut value = source.value.to_owned();
        if let Some(bounds) = access.slice {
            let sliced = match access.steps.is_empty() {
                true => name.clone(),
                false => format!("{name}/entry"),
            };
            let [axis, start, end] = bounds.map(|bound| i64::try_from(bound).unwrap_or(i64::MAX));
            let bounds = [("starts", start), ("ends", end), ("axes", axis)].map(|(what, bound)| {
                let constant = format!("{name}/{what}");
                self.constants.push(integers(&constant, &[bound]));
                constant
            });
            let inputs = [
                &[value.as_str()],
                bounds.each_ref().map(String::as_str).as_slice(),
            ]
            .concat();
            self.nodes.push(node("Slice", &inputs, &[&sliced]));
            value = sliced;
        }
        if access.steps.is_empty() {
            return Some(value);
        }
        self.steps(&access.steps, &value, &name);
        Some(name)
    }

    /// Adds the nodes that compute `to` from `from`.
    fn steps(&mut self, steps: &[LayoutStep], from: &str, to: &str) {
        let mut value = from.to_owned();
        for (place, step) in steps.iter().enumerate() {
            let next = match place + 1 == steps.len() {
                true => to.to_owned(),
                false => format!("{to}/ordered{place}"),
            };
            self.step(step, &value, &next);
            value = next;
        }
    }

    fn step(&mut self, step: &LayoutStep, from: &str, to: &str) {
        self.nodes.push(match step {
            LayoutStep::Reshape(target) => {
                let shape = format!("{to}/target");
                self.constants.push(integers(&shape, target));
                node("Reshape", &[from, &shape], &[to])
            }
            LayoutStep::Transpose(order) => node("Transpose", &[from], &[to]).with([ints("perm", order)]),
        });
    }
}
