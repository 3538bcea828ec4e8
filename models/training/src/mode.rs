use crate::TrainingError;
use crate::range::fraction;
use frostline_graph::Model;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::ops::Range;

/// What becomes of the statistics and the affine part of BatchNormalization. Where an exporter folded it into the convolution before, none
/// of it is left.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BatchNorm {
    /// The stored statistics normalize and stay as they are; scale and bias are trained.
    #[default]
    Stored,
    /// All of it stays as it is.
    Frozen,
    /// Those of the batch normalize, and the stored ones move towards them by the momentum in the model, as in PyTorch's training mode;
    /// scale and bias are trained. Where a batch has one value a channel, the stored ones normalize.
    Updated,
}

/// Dropout at a tensor: each element is zero with probability `ratio`, and the others are scaled by `1 / (1 - ratio)`
/// (`torch.nn.Dropout`). The graph of a step takes what is drawn as an input, a [`Mask`](crate::Mask).
#[derive(Debug, Clone, PartialEq)]
pub struct Dropout {
    /// The tensor's name in the suffix: its input, or what a node gives. Whoever reads it reads what is left.
    pub tensor: String,
    /// At least 0 and below 1.
    pub ratio: f64,
    /// Seeds the masks: two dropouts of one seed draw alike.
    pub seed: u64,
}

impl BatchNorm {
    /// Refuses what cannot be done with `suffix`.
    ///
    /// # Errors
    /// [`TrainingError::Suffix`] where statistics are to move, and there are none or two nodes share one.
    pub fn check(self, suffix: &Model) -> Result<(), TrainingError> {
        moving_statistics(suffix, self).map(|_| ())
    }
}

/// The stored statistics of `suffix` that move with each step.
pub(crate) fn moving_statistics(suffix: &Model, mode: BatchNorm) -> Result<Vec<&str>, TrainingError> {
    if mode != BatchNorm::Updated {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = read_by_batch_norm(suffix, 3..5).collect();
    if names.is_empty() {
        return Err(TrainingError::suffix(
            "no BatchNormalization is left whose statistics could be updated: exporters fold it into convolutions; export without \
             constant folding, or keep the stored statistics",
        ));
    }
    let (mut seen, stored) = (HashSet::new(), suffix.initializers());
    match names
        .iter()
        .find(|name| !seen.insert(**name) || !stored.contains_key(**name))
    {
        Some(shared) => Err(TrainingError::suffix(format!(
            "the statistic '{shared}' stands in the file once for several BatchNormalizations, so it cannot be updated; export the \
             network with trained weights"
        ))),
        None => Ok(names),
    }
}

/// What BatchNormalization reads in `slots`.
pub(crate) fn read_by_batch_norm(suffix: &Model, slots: Range<usize>) -> impl Iterator<Item = &str> {
    let nodes = suffix.nodes().iter();
    let normalizing = nodes.filter(|node| node.standard_operator() == Some("BatchNormalization"));
    normalizing.flat_map(move |node| slots.clone().filter_map(|slot| node.input_name(slot)))
}

impl Dropout {
    pub(crate) fn check(&self) -> Result<(), TrainingError> {
        fraction("the share of elements that is dropped", self.ratio)
    }
}
