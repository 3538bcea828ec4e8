use super::graph::AttentionGraph;
use crate::layout::{AxisLayout, COPY, LayoutStep, RESHAPE};
use frostline_graph::from_end;
use frostline_graph::onnx::NodeProto;

/// Tensor from which the fused operator can read its input.
#[derive(Clone)]
pub(super) struct InputSource<'a> {
    pub(super) value: &'a str,
    layout: AxisLayout,
    /// Layout of the fused operator's input.
    wanted: AxisLayout,
    /// Entry of a joint tensor to read.
    entry: Option<usize>,
    /// Factor between this tensor and the operand of the attention.
    pub(super) scale: f64,
}

/// Operations that read an input from its source.
pub(super) struct InputAccess {
    /// Slice bounds: axis, start, end.
    pub(super) slice: Option<[usize; 3]>,
    pub(super) steps: Vec<LayoutStep>,
}

impl InputAccess {
    fn cost(&self) -> u32 {
        let steps: u32 = self.steps.iter().map(LayoutStep::cost).sum();
        steps + if self.slice.is_some() { COPY } else { 0 }
    }
}

/// Treatment of constant factors between a source and an operand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scaling {
    /// Included in the attention's scale.
    Included,
    /// Not supported, which ends the search for a source.
    None,
}

impl<'a> InputSource<'a> {
    /// Returns this source, read from `value` with another layout.
    fn read_from(&self, value: &'a str, layout: AxisLayout) -> Self {
        Self {
            value,
            layout,
            ..self.clone()
        }
    }

    /// Returns the operations that read the fused operator's input from this source, if it is possible.
    pub(super) fn access(&self) -> Option<InputAccess> {
        let to = &self.wanted;
        let Some(entry) = self.entry else {
            return Some(InputAccess {
                slice: None,
                steps: self.layout.steps(to),
            });
        };
        let (axis, size, layout) = self.layout.entry()?;
        Some(InputAccess {
            slice: Some([axis, entry * size, (entry + 1) * size]),
            steps: layout.steps(to),
        })
    }
}

impl<'a> AttentionGraph<'a> {
    /// Returns the tensor from which `value` with the given layout is read in the layout `wanted` at the least
    /// cost, including the cost of the nodes that compute this tensor.
    pub(super) fn source(
        &self,
        value: &'a str,
        layout: AxisLayout,
        wanted: AxisLayout,
        scaling: Scaling,
    ) -> Option<InputSource<'a>> {
        let mut next = Some((
            InputSource {
                value,
                layout,
                wanted,
                entry: None,
                scale: 1.0,
            },
            0,
        ));
        let mut sources = Vec::new();
        while let Some((source, cost)) = next {
            next = self.before(&source, scaling);
            sources.push((source, cost));
        }
        let mut computed = 0;
        let mut best = None;
        for (source, cost) in sources.into_iter().rev() {
            if let Some(access) = source.access() {
                let total = access.cost() + computed;
                if best.as_ref().is_none_or(|(least, _)| total < *least) {
                    best = Some((total, source));
                }
            }
            computed += cost;
        }
        best.map(|(_, source)| source)
    }

    /// Returns the tensor from which the node that produces `source` reads its elements, and the cost of that
    /// node. Returns `None` if the node computes new elements.
    fn before(&self, source: &InputSource<'a>, scaling: Scaling) -> Option<(InputSource<'a>, u32)> {
        let (_, node) = self.links.producer(source.value)?;
        if let Some(input) = self.unchanged(node) {
            return Some((source.read_from(input, source.layout.clone()), 0));
        }
        if scaling == Scaling::Included
            && let Some((value, factor)) = self.scaled(node)
        {
            let scaled = InputSource {
                value,
                scale: source.scale * factor,
                ..source.clone()
            };
            return Some((scaled, COPY));
        }
        let input = node.input_name(0)?;
        let dims = self.dims(input)?;
        match node.standard_operator()? {
            "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten" => {
                Some((source.read_from(input, source.layout.regrouped(dims)?), RESHAPE))
            }
            "Transpose" => {
                let layout = source.layout.before_transpose(&permutation(node, dims.len())?)?;
                Some((source.read_from(input, layout), COPY))
            }
            "Gather" | "Slice" | "Split" if source.entry.is_none() => {
                let (axis, entry) = self.selection(node, source.value, dims)?;
                let axes = self.dims(source.value)?.len();
                let adds = axes + 1 == dims.len();
                if !adds && axes != dims.len() {
                    return None;
                }
                let count = *dims.get(axis)?;
                if count == 1 {
                    return Some((source.read_from(input, source.layout.regrouped(dims)?), RESHAPE));
                }
                let joint = InputSource {
                    value: input,
                    layout: source.layout.joint(axis, count, adds)?,
                    entry: Some(entry),
                    ..source.clone()
                };
                Some((joint, COPY))
            }
            _ => None,
        }
    }

    /// Returns the axis and the index of the only entry that `node` selects.
    fn selection(&self, node: &NodeProto, output: &str, dims: &[usize]) -> Option<(usize, usize)> {
        let (axis, entry) = match node.standard_operator()? {
            "Gather" => (node.int("axis").unwrap_or(0), self.literal(node, 1)?),
            "Slice" => {
                let step = if node.input_name(4).is_some() {
                    self.literal(node, 4)?
                } else {
                    1
                };
                let axis = self.literal(node, 3).filter(|_| step == 1)?;
                (axis, self.literal(node, 1)?)
            }
            "Split" => {
                let slot = node.output.iter().position(|name| name == output)?;
                (node.int("axis").unwrap_or(0), i64::try_from(slot).ok()?)
            }
            _ => return None,
        };
        let axis = counted(axis, dims.len())?;
        let count = *dims.get(axis)?;
        let selects_one = node.output.iter().all(|value| {
            let sizes = self.dims(value);
            sizes.is_some_and(|sizes| sizes.len() < dims.len() || sizes.get(axis) == Some(&1))
        });
        counted(entry, count)
            .filter(|_| selects_one)
            .map(|entry| (axis, entry))
    }

    /// Returns the constant in input `slot` if it is a single integer.
    fn literal(&self, node: &NodeProto, slot: usize) -> Option<i64> {
        match self.shapes.integers(node.input_name(slot)?)? {
            &[number] => Some(number),
            _ => None,
        }
    }
}

/// Returns the axes of the input in the order of the output's axes.
pub(super) fn permutation(node: &NodeProto, axes: usize) -> Option<Vec<usize>> {
    match node.ints("perm") {
        Some(order) => order.iter().map(|&axis| usize::try_from(axis).ok()).collect(),
        None => Some((0..axes).rev().collect()),
    }
}

/// Converts an index that counts from the end if it is negative.
fn counted(index: i64, count: usize) -> Option<usize> {
    let count = i64::try_from(count).ok()?;
    let index = from_end(index, count);
    usize::try_from(index).ok().filter(|_| index < count)
}
