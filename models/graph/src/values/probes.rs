//! How every shape depends on the batch: two inferences at two batch sizes, compared.

use super::{Context, Value, Values};
use crate::onnx::{NodeProto, TensorProto};
use crate::{GraphError, Model};

/// The two batch sizes. Primes larger than most axes, so that a fixed axis is hardly ever one of them, and small enough that no
/// real network overflows.
pub(crate) const SIZES: (usize, usize) = (1009, 2003);

/// How an axis, or an integer of a shape, depends on the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dim {
    /// Not at all.
    Fixed(usize),
    /// It is the batch this many times.
    Batch(usize),
}

impl Dim {
    /// The size of an axis that does not depend on the batch.
    pub(crate) fn fixed(&self) -> Option<usize> {
        match self {
            Self::Fixed(size) => Some(*size),
            Self::Batch(_) => None,
        }
    }
}

/// What is known of every value at both batch sizes.
#[derive(Debug, Clone)]
pub(crate) struct Probes {
    small: Values,
    large: Values,
}

impl Probes {
    pub(crate) fn start(model: &Model) -> Result<Self, GraphError> {
        Ok(Self {
            small: Values::start(model, SIZES.0)?,
            large: Values::start(model, SIZES.1)?,
        })
    }

    /// The values at the smaller batch size and at the larger.
    pub(crate) fn each(&mut self) -> [&mut Values; 2] {
        [&mut self.small, &mut self.large]
    }

    /// Adds a constant that a node to come uses.
    pub(crate) fn add(&mut self, weight: &TensorProto) -> Result<(), GraphError> {
        self.small.add(weight)?;
        self.large.add(weight)
    }

    /// The dimensions of a value; `None` where they are unknown or depend on the batch in any other way than by a factor.
    pub(crate) fn dims(&self, name: &str) -> Option<Vec<Dim>> {
        compare(self.small.dims(name)?, self.large.dims(name)?)
    }

    /// The elements of a known vector of sizes, as they depend on the batch.
    pub(crate) fn sizes(&self, name: &str) -> Option<Vec<Dim>> {
        let sizes = |inference: &Values| -> Option<Vec<usize>> {
            let values = inference.get(name).literal.as_ref()?.integers()?;
            values.iter().map(|&value| usize::try_from(value).ok()).collect()
        };
        compare(&sizes(&self.small)?, &sizes(&self.large)?)
    }

    /// Whether a value's elements are known and the same for every batch.
    pub(crate) fn is_fixed(&self, name: &str) -> bool {
        let (small, large) = (self.small.get(name), self.large.get(name));
        small.literal.is_some() && small == large
    }

    pub(crate) fn data_type(&self, name: &str) -> i32 {
        self.small.get(name).data_type
    }

    /// The dimensions at the smaller batch size: for comparing the work of nodes.
    pub(crate) fn small_dims(&self, name: &str) -> Option<&[usize]> {
        self.small.dims(name)
    }

    /// A value as it is known at the smaller batch size and at the larger.
    pub(crate) fn both(&self, name: &str) -> (&Value, &Value) {
        (self.small.get(name), self.large.get(name))
    }

    /// A node as it looks at the smaller batch size and at the larger.
    pub(crate) fn contexts<'a>(&'a self, node: &'a NodeProto) -> (Context<'a>, Context<'a>) {
        (self.small.context(node), self.large.context(node))
    }

    /// A node as it looks at the smaller batch size.
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
    let factor = small / SIZES.0;
    let is_factor =
        small.is_multiple_of(SIZES.0) && large.is_multiple_of(SIZES.1) && large / SIZES.1 == factor;
    is_factor.then_some(Dim::Batch(factor))
}
