//! Where the samples of a batch lie inside each value, and whether they stay independent of each other.
//!
//! A value carries its samples along one axis of size `outer * batch * inner`: attention, for example, flattens
//! `[tokens, batch, heads, width]` to `[tokens, batch * heads, width]`. Reshapes keep the row-major order of elements, so
//! the batch axis can be followed through them; an operator that is unknown, or that computes across samples, ends it.

mod layers;
mod layout;

use crate::form::used;
pub(crate) use layout::steps_outside;

use crate::infer::Context;
use crate::infer::elementwise::{BROADCASTING, COMPARING, POINTWISE};
use crate::onnx::NodeProto;
use crate::probes::{Dim, Probes};
use std::collections::HashMap;

/// The axis that carries the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Samples {
    pub(crate) axis: usize,
    /// Steps of the axis outside the batch.
    pub(crate) outer: usize,
    /// Steps of the axis inside the batch.
    pub(crate) inner: usize,
}

impl Samples {
    /// The batch itself as an axis.
    pub(crate) fn plain(axis: usize) -> Self {
        Self {
            axis,
            outer: 1,
            inner: 1,
        }
    }

    pub(crate) fn on(self, axis: usize) -> Self {
        Self { axis, ..self }
    }
}

/// How a value's elements depend on the samples of the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    /// Not at all, and neither on how many there are.
    Same,
    /// Each sample's part depends on that sample only.
    Apart(Samples),
    /// In a way that is not known to keep samples apart.
    Mixed,
}

/// The rows of every value, filled node by node.
#[derive(Debug, Clone)]
pub(crate) struct RowMap(HashMap<String, Rows>);

impl RowMap {
    /// Knows the inputs: the batch is their first axis.
    pub(crate) fn start<'a>(inputs: impl Iterator<Item = &'a str>) -> Self {
        Self(
            inputs
                .map(|name| (name.to_owned(), Rows::Apart(Samples::plain(0))))
                .collect(),
        )
    }

    /// The rows of a value; what no node produces is a weight.
    pub(crate) fn get(&self, name: &str) -> Rows {
        self.0.get(name).copied().unwrap_or(Rows::Same)
    }

    /// Takes in the next node; `probes` must know its outputs.
    pub(crate) fn step(&mut self, node: &NodeProto, probes: &Probes) {
        let view = View {
            node,
            probes,
            rows: self,
        };
        let same = is_deterministic(node) && used(node).into_iter().all(|name| self.get(name) == Rows::Same);
        let rows = if same { Rows::Same } else { view.rule() };
        let outputs = node
            .output
            .iter()
            .enumerate()
            .filter(|(_, name)| !name.is_empty());
        let outputs: Vec<(String, Rows)> = outputs
            .map(|(slot, name)| {
                let known = slot == 0 || same || matches!(node.op_type.as_str(), "Split" | "TopK");
                (
                    name.clone(),
                    settle(name, if known { rows } else { Rows::Mixed }, probes),
                )
            })
            .collect();
        self.0.extend(outputs);
    }
}

/// What a rule says, checked against the value's shape.
fn settle(name: &str, rows: Rows, probes: &Probes) -> Rows {
    match rows {
        _ if probes.is_fixed(name) => Rows::Same,
        Rows::Apart(samples) if !carries(probes.dims(name).as_deref(), samples) => Rows::Mixed,
        other => other,
    }
}

/// Whether the same inputs always give the same outputs.
fn is_deterministic(node: &NodeProto) -> bool {
    !node.op_type.starts_with("Random") && !matches!(node.op_type.as_str(), "Bernoulli" | "Multinomial")
}

/// Whether a value of `dims` has its batch along exactly that axis.
fn carries(dims: Option<&[Dim]>, samples: Samples) -> bool {
    let matches = |(axis, dim): (usize, &Dim)| match dim {
        Dim::Batch(times) => axis == samples.axis && samples.outer.checked_mul(samples.inner) == Some(*times),
        Dim::Fixed(_) => axis != samples.axis,
    };
    dims.is_some_and(|dims| samples.axis < dims.len() && dims.iter().enumerate().all(matches))
}

/// A node with the rows of its inputs.
struct View<'a> {
    node: &'a NodeProto,
    probes: &'a Probes,
    rows: &'a RowMap,
}

impl<'a> View<'a> {
    fn input(&self, slot: usize) -> Option<Rows> {
        self.node.input_name(slot).map(|name| self.rows.get(name))
    }

    /// The samples of an input that carries them.
    fn samples(&self, slot: usize) -> Option<Samples> {
        match self.input(slot)? {
            Rows::Apart(samples) => Some(samples),
            Rows::Same | Rows::Mixed => None,
        }
    }

    /// Whether an input is left out or the same for every batch.
    fn is_parameter(&self, slot: usize) -> bool {
        matches!(self.input(slot), None | Some(Rows::Same))
    }

    fn all_parameters_from(&self, slot: usize) -> bool {
        (slot..self.node.input.len()).all(|slot| self.is_parameter(slot))
    }

    fn dims(&self, slot: usize) -> Option<Vec<Dim>> {
        self.probes.dims(self.node.input_name(slot)?)
    }

    fn output_dims(&self) -> Option<Vec<Dim>> {
        self.probes.dims(self.node.output_name(0)?)
    }

    fn rank(&self, slot: usize) -> Option<usize> {
        self.probes
            .small_dims(self.node.input_name(slot)?)
            .map(<[usize]>::len)
    }

    fn context(&self) -> Context<'a> {
        self.probes.context(self.node)
    }

    /// The rule of the node's operator; without one, or where it does not apply, samples count as mixed.
    fn rule(&self) -> Rows {
        let followed = match self.node.standard_operator() {
            Some(operator) => self.follow(operator),
            None => None,
        };
        followed.map_or(Rows::Mixed, Rows::Apart)
    }

    fn follow(&self, operator: &str) -> Option<Samples> {
        match operator {
            "Dropout" => self.dropout(),
            "Cast" => self.samples(0),
            "Where" => self.aligned(),
            "Conv"
            | "ConvTranspose"
            | "MaxPool"
            | "AveragePool"
            | "LpPool"
            | "GlobalAveragePool"
            | "GlobalMaxPool"
            | "GlobalLpPool"
            | "LRN"
            | "InstanceNormalization"
            | "GroupNormalization"
            | "DepthToSpace"
            | "SpaceToDepth" => self.along_first_axis(),
            "BatchNormalization" => {
                (self.node.int("training_mode").unwrap_or(0) == 0).then(|| self.along_first_axis())?
            }
            "Gemm" => self.gemm(),
            "MatMul" => self.matmul(),
            "Softmax" | "LogSoftmax" | "Hardmax" => self.softmax(),
            "LayerNormalization" | "RMSNormalization" => self.layer_normalization(),
            "LpNormalization" | "ArgMax" | "ArgMin" | "TopK" => self.along_other_axis(operator),
            "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" => self.regrouped(),
            "Transpose" => self.transpose(),
            "Concat" => self.concat(),
            "Split" => self.split(),
            "Slice" => self.slice(),
            "Gather" => self.gather(),
            "Pad" => self.pad(),
            "Resize" | "Upsample" | "Tile" => self.untouched_axis(),
            "Expand" => self.expand(),
            "ConstantOfShape" => self.filled(),
            _ if operator.starts_with("Reduce") => self.reduce(),
            _ if POINTWISE.contains(&operator) => self.all_parameters_from(1).then(|| self.samples(0))?,
            _ if BROADCASTING.contains(&operator) || COMPARING.contains(&operator) => self.aligned(),
            _ => None,
        }
    }
}
