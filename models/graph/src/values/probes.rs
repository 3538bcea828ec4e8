//! Dependency of shapes on the batch, found by comparing the inference at two batch sizes.

use super::{Context, InferredValue, InferredValues};
use crate::onnx::{NodeProto, TensorProto};
use crate::{GraphError, Model};

/// The two batch sizes. The numbers are primes and larger than most axes, so fixed axes rarely have these
/// sizes. They are small enough to avoid overflow in real networks.
pub(crate) const PROBE_BATCHES: (usize, usize) = (1009, 2003);

/// Size of an axis, or an integer in a shape, as a function of the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dim {
    /// Does not depend on the batch.
    Fixed(usize),
    /// Multiple of the batch.
    Batch(usize),
}

impl Dim {
    /// Returns the size if it does not depend on the batch.
    pub(crate) fn fixed(&self) -> Option<usize> {
        match self {
            Self::Fixed(size) => Some(*size),
            Self::Batch(_) => None,
        }
    }
}

/// Known properties of all values at both batch sizes.
#[derive(Debug, Clone)]
pub(crate) struct Probes {
    small: InferredValues,
    large: InferredValues,
}

impl Probes {
    pub(crate) fn start(model: &Model) -> Result<Self, GraphError> {
        Ok(Self {
            small: InferredValues::start(model, PROBE_BATCHES.0)?,
            large: InferredValues::start(model, PROBE_BATCHES.1)?,
        })
    }

    /// Returns the values at the smaller and at the larger batch size.
    pub(crate) fn each(&mut self) -> [&mut InferredValues; 2] {
        [&mut self.small, &mut self.large]
    }

    /// Adds a constant for a later node.
    pub(crate) fn add(&mut self, weight: &TensorProto) -> Result<(), GraphError> {
        self.small.add(weight)?;
        self.large.add(weight)
    }

    /// Returns the dimensions of a value, or `None` if they are unknown or depend on the batch other than by
    /// a factor.
    pub(crate) fn dims(&self, name: &str) -> Option<Vec<Dim>> {
        compare(self.small.dims(name)?, self.large.dims(name)?)
    }

    /// Returns the elements of a known vector of sizes as functions of the batch.
    pub(crate) fn sizes(&self, name: &str) -> Option<Vec<Dim>> {
        compare(&self.small.sizes(name)?, &self.large.sizes(name)?)
    }

    /// Returns true if the elements of a value are known and the same for every batch.
    pub(crate) fn is_fixed(&self, name: &str) -> bool {
        let small = self.small.get(name);
        let large = self.large.get(name);
        small.literal.is_some() && small == large
    }

    pub(crate) fn fixed_integers(&self, name: &str) -> Option<&[i64]> {
        let literal = self.small.get(name).literal.as_ref();
        literal.filter(|_| self.is_fixed(name))?.integers()
    }

    pub(crate) fn data_type(&self, name: &str) -> i32 {
        self.small.get(name).data_type
    }

    /// Returns the dimensions at the smaller batch size, for comparing the work of nodes.
    pub(crate) fn small_dims(&self, name: &str) -> Option<&[usize]> {
        self.small.dims(name)
    }

    /// Returns a value at the smaller and at the larger batch size.
    pub(crate) fn both(&self, name: &str) -> (&InferredValue, &InferredValue) {
        (self.small.get(name), self.large.get(name))
    }

    /// Returns a node at the smaller and at the larger batch size.
    pub(crate) fn contexts<'a>(&'a self, node: &'a NodeProto) -> (Context<'a>, Context<'a>) {
        (self.small.context(node), self.large.context(node))
    }

    /// Returns a node at the smaller batch size.
    pub(crate) fn context<'a>(&'a self, node: &'a NodeProto) -> Context<'a> {
        self.small.context(node)
    }
}

fn compare(small: &[usize], large: &[usize]) -> Option<Vec<Dim>> {
    if small.len() != large.len() {
        return None;
    }
    small
        .iter()
        .zip(large)
        .map(|(&small, &large)| relate(small, large))
        .collect()
}

fn relate(small: usize, large: usize) -> Option<Dim> {
    if small == large {
        return Some(Dim::Fixed(small));
    }
    let factor = small / PROBE_BATCHES.0;
    let is_factor = small.is_multiple_of(PROBE_BATCHES.0)
        && large.is_multiple_of(PROBE_BATCHES.1)
        && large / PROBE_BATCHES.1 == factor;
    is_factor.then_some(Dim::Batch(factor))
}
