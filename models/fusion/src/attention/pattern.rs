use super::graph::AttentionGraph;
use super::sources::{InputSource, Scaling};
use crate::layout::{AxisLayout, AxisPart};
use frostline_graph::onnx::NodeProto;
use std::collections::HashSet;

/// Attention of a network.
pub(super) struct Attention<'a> {
    /// Index of the product of probabilities and values.
    pub(super) index: usize,
    pub(super) product: &'a NodeProto,
    pub(super) query: InputSource<'a>,
    pub(super) key: InputSource<'a>,
    pub(super) value: InputSource<'a>,
    /// The bias and the target of a `Reshape` to four axes, if it needs one.
    pub(super) bias: Option<(&'a str, Option<Vec<i64>>)>,
    pub(super) scale: f32,
    pub(super) heads: usize,
    /// Layout of the product.
    pub(super) layout: AxisLayout,
    /// Layout of the fused operator's output.
    pub(super) fused: AxisLayout,
}

/// Nodes of the matched pattern and values private to the pattern.
#[derive(Default, Clone)]
struct Inside<'a> {
    nodes: HashSet<usize>,
    values: Vec<&'a str>,
}

impl<'a> Inside<'a> {
    fn add(&mut self, index: usize, value: &'a str) {
        self.nodes.insert(index);
        self.values.push(value);
    }
}

/// Product of query and key.
struct Scores<'a> {
    query: &'a str,
    key: &'a str,
    scale: f64,
}

/// Sizes of an attention. Without an axis for the heads there is a single head.
#[derive(Clone, Copy)]
struct AttentionSizes {
    batch: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    width: usize,
    value_width: usize,
    has_heads: bool,
}

impl<'a> AttentionGraph<'a> {
    /// Returns the attention that ends with `product`, the node with this index.
    pub(super) fn attention(&self, index: usize, product: &'a NodeProto) -> Option<Attention<'a>> {
        product.standard_operator().filter(|name| *name == "MatMul")?;
        let mut inside = Inside::default();
        inside.nodes.insert(index);
        let normalized = self.softmax_input(product.input_name(0)?, &mut inside)?;
        let values = product.input_name(1)?;
        let (scores, bias) = self.scores_and_bias(normalized, &mut inside)?;
        if !inside.values.iter().all(|value| {
            let readers = self.links.readers(value);
            !self.links.is_output(value) && readers.iter().all(|reader| inside.nodes.contains(reader))
        }) {
            return None;
        }
        let sizes = self.sizes(&scores, values)?;
        let bias = match bias {
            Some(bias) => Some((bias, self.bias_target(bias, scores.query, sizes)?)),
            None => None,
        };
        let [query, key, value] = self.sources(&scores, values, sizes)?;
        let scale = as_single(scores.scale * query.scale * key.scale);
        // ONNX Runtime replaces 0 by a default, and kernels take the maximum before they scale.
        if !(scale.is_finite() && scale > 0.0) {
            return None;
        }
        let rows = (AxisPart::Sequence, sizes.queries);
        let columns = (AxisPart::Width, sizes.value_width);
        Some(Attention {
            index,
            product,
            query,
            key,
            value,
            bias,
            scale,
            heads: sizes.heads,
            layout: sizes.split(rows, columns),
            fused: sizes.joined(rows, columns),
        })
    }

    /// Returns the input of the `Softmax` over the last axis that produces `value`. Skips nodes that return
    /// the input unchanged or replace NaN with 0.
    fn softmax_input(&self, mut value: &'a str, inside: &mut Inside<'a>) -> Option<&'a str> {
        loop {
            let (index, node) = self.links.producer(value)?;
            inside.add(index, value);
            value = match node.standard_operator()? {
                "Softmax" => {
                    let last = i64::try_from(self.dims(value)?.len()).ok()? - 1;
                    let axis = node.int("axis").unwrap_or(-1);
                    return node.input_name(0).filter(|_| axis == -1 || axis == last);
                }
                "Where" => {
                    let condition = node.input_name(0)?;
                    let (test, tested) = self.links.producer(condition)?;
                    inside.add(test, condition);
                    let original = node.input_name(2)?;
                    let guards = tested.standard_operator() == Some("IsNaN")
                        && tested.input_name(0) == Some(original)
                        && self.number(node.input_name(1)?) == Some(0.0)
                        && self.dims(original) == self.dims(value);
                    guards.then_some(original)?
                }
                _ => self.unchanged(node)?,
            };
        }
    }

    /// Returns the product of query and key from which `value` is computed, and the bias that is added to it.
    fn scores_and_bias(
        &self,
        mut value: &'a str,
        inside: &mut Inside<'a>,
    ) -> Option<(Scores<'a>, Option<&'a str>)> {
        loop {
            let (index, node) = self.links.producer(value)?;
            if let Some(input) = self.unchanged(node) {
                inside.add(index, value);
                value = input;
                continue;
            }
            if node.standard_operator() != Some("Add") {
                return self.scores(value, inside).map(|scores| (scores, None));
            }
            inside.add(index, value);
            let operands = [node.input_name(0)?, node.input_name(1)?];
            for [product, bias] in [operands, [operands[1], operands[0]]] {
                let mut extended = inside.clone();
                if let Some(scores) = self.scores(product, &mut extended) {
                    *inside = extended;
                    return Some((scores, Some(bias)));
                }
            }
            return None;
        }
    }

    /// Returns the product of query and key from which `value` is computed by scaling.
    fn scores(&self, mut value: &'a str, inside: &mut Inside<'a>) -> Option<Scores<'a>> {
        let mut scale = 1.0;
        loop {
            let (index, node) = self.links.producer(value)?;
            inside.add(index, value);
            if node.standard_operator() == Some("MatMul") {
                return Some(Scores {
                    query: node.input_name(0)?,
                    key: node.input_name(1)?,
                    scale,
                });
            }
            value = match self.scaled(node) {
                Some((input, factor)) => {
                    scale *= factor;
                    input
                }
                None => self.unchanged(node)?,
            };
        }
    }

    fn sizes(&self, scores: &Scores<'a>, values: &'a str) -> Option<AttentionSizes> {
        let [query, key, value] = [
            self.floats(scores.query)?,
            self.floats(scores.key)?,
            self.floats(values)?,
        ];
        if query.data_type != key.data_type || query.data_type != value.data_type {
            return None;
        }
        let (lead, [queries, width]) = query.dims.split_last_chunk()?;
        let (key_lead, [key_width, keys]) = key.dims.split_last_chunk()?;
        let (value_lead, [value_keys, value_width]) = value.dims.split_last_chunk()?;
        if lead != key_lead || lead != value_lead || width != key_width || keys != value_keys {
            return None;
        }
        let (batch, heads, has_heads) = match *lead {
            [batch, heads] => (batch, heads, true),
            [batch] => (batch, 1, false),
            _ => return None,
        };
        Some(AttentionSizes {
            batch,
            heads,
            queries: *queries,
            keys: *keys,
            width: *width,
            value_width: *value_width,
            has_heads,
        })
    }

    /// Checks that the bias has an entry per query and key. Returns the target of a `Reshape` if it does not
    /// have four axes.
    fn bias_target(&self, bias: &str, query: &str, sizes: AttentionSizes) -> Option<Option<Vec<i64>>> {
        let shape = self.floats(bias)?;
        if shape.data_type != self.shapes.get(query)?.data_type {
            return None;
        }
        let (lead, [queries, keys]) = shape.dims.split_last_chunk()?;
        if [*queries, *keys] != [sizes.queries, sizes.keys] {
            return None;
        }
        let (batch, heads) = match (lead, sizes.has_heads) {
            (&[], _) => (1, 1),
            (&[heads], true) => (1, heads),
            (&[batch], false) => (batch, 1),
            (&[batch, heads], true) => (batch, heads),
            _ => return None,
        };
        if ![1, sizes.batch].contains(&batch) || ![1, sizes.heads].contains(&heads) {
            return None;
        }
        if lead.len() == 2 {
            return Some(None);
        }
        let batch = if batch == 1 { 1 } else { -1 };
        let fixed = [heads, *queries, *keys].map(|size| i64::try_from(size).unwrap_or(i64::MAX));
        Some(Some([&[batch], fixed.as_slice()].concat()))
    }

    /// Returns the tensors from which the fused operator can read query, key and value.
    fn sources(
        &self,
        scores: &Scores<'a>,
        values: &'a str,
        sizes: AttentionSizes,
    ) -> Option<[InputSource<'a>; 3]> {
        let queries = (AxisPart::Sequence, sizes.queries);
        let keys = (AxisPart::Sequence, sizes.keys);
        let width = (AxisPart::Width, sizes.width);
        let value_width = (AxisPart::Width, sizes.value_width);
        let query = sizes.split(queries, width);
        let key = sizes.split(width, keys);
        let value = sizes.split(keys, value_width);
        Some([
            self.source(
                scores.query,
                query,
                sizes.joined(queries, width),
                Scaling::Included,
            )?,
            self.source(scores.key, key, sizes.joined(keys, width), Scaling::Included)?,
            self.source(values, value, sizes.joined(keys, value_width), Scaling::None)?,
        ])
    }
}

impl AttentionSizes {
    /// Returns the layout of an operand of the attention's products with these last axes.
    fn split(self, rows: (AxisPart, usize), columns: (AxisPart, usize)) -> AxisLayout {
        let batch = (AxisPart::Batch, self.batch);
        match self.has_heads {
            true => AxisLayout::new([&[batch], &[(AxisPart::Heads, self.heads)], &[rows], &[columns]]),
            false => AxisLayout::new([&[batch], &[rows], &[columns]]),
        }
    }

    /// Returns the layout of an input or output of the fused operator.
    fn joined(self, rows: (AxisPart, usize), columns: (AxisPart, usize)) -> AxisLayout {
        let batch = (AxisPart::Batch, self.batch);
        AxisLayout::new([&[batch], &[rows], &[(AxisPart::Heads, self.heads), columns]])
    }
}

#[allow(clippy::cast_possible_truncation)]
fn as_single(value: f64) -> f32 {
    value as f32
}
