use crate::TrainingError;
use crate::range::fraction;
use frostline_graph::Model;
use std::collections::HashSet;
use std::ops::Range;

/// Treatment of BatchNormalization. It has no effect if the exporter folded the operator into the preceding
/// convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BatchNorm {
    /// Normalizes with the stored statistics, which do not change. Scale and bias are trained.
    #[default]
    Stored,
    /// Normalizes with the stored statistics. Nothing is trained.
    Frozen,
    /// Normalizes with the statistics of the batch. The stored statistics move by the momentum in the model,
    /// like in the training mode of PyTorch. Scale and bias are trained. A batch with a single value per
    /// channel is normalized with the stored statistics.
    Updated,
}

/// Dropout at a tensor: elements become zero with probability `ratio`, and all other elements are scaled by
/// `1 / (1 - ratio)` (`torch.nn.Dropout`). The graph of a step reads the random factors from an input, the
/// [`DropoutMask`](crate::DropoutMask).
#[derive(Debug, Clone, PartialEq)]
pub struct Dropout {
    /// Name of the tensor in the suffix, either the input or the output of a node. All readers get the result
    /// of the dropout.
    pub tensor: String,
    /// Probability from 0 to below 1.
    pub ratio: f64,
    /// Seed of the masks. Dropouts with the same seed draw the same numbers.
    pub seed: u64,
}

impl BatchNorm {
    /// Checks that `suffix` supports this mode.
    ///
    /// # Errors
    /// Returns [`TrainingError::Suffix`] for [`Self::Updated`] if the suffix has no BatchNormalization, or if
    /// a statistic is shared by two nodes or not stored.
    pub fn check(self, suffix: &Model) -> Result<(), TrainingError> {
        moving_statistics(suffix, self).map(|_| ())
    }
}

/// Returns the names of the stored statistics in `suffix` that change with every step.
pub(crate) fn moving_statistics(suffix: &Model, mode: BatchNorm) -> Result<Vec<&str>, TrainingError> {
    if mode != BatchNorm::Updated {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = read_by_batch_norm(suffix, 3..5).collect();
    if names.is_empty() {
        return Err(TrainingError::suffix(
            "it has no BatchNormalization with statistics to update: exporters fold it into convolutions; export without \
             constant folding, or keep the stored statistics",
        ));
    }
    let mut seen = HashSet::new();
    let stored = suffix.initializers();
    match names
        .iter()
        .find(|name| !seen.insert(**name) || !stored.contains_key(**name))
    {
        Some(shared) => Err(TrainingError::suffix(format!(
            "the statistic '{shared}' is stored once for several BatchNormalizations and cannot be updated; export the \
             network with trained weights"
        ))),
        None => Ok(names),
    }
}

/// Returns the names of the tensors that BatchNormalization reads in `slots`.
pub(crate) fn read_by_batch_norm(suffix: &Model, slots: Range<usize>) -> impl Iterator<Item = &str> {
    let nodes = suffix.nodes().iter();
    let normalizing = nodes.filter(|node| {
        // One in training mode standardizes a weight and stores no statistics.
        node.standard_operator() == Some("BatchNormalization") && node.int("training_mode").unwrap_or(0) == 0
    });
    normalizing.flat_map(move |node| slots.clone().filter_map(|slot| node.input_name(slot)))
}

impl Dropout {
    pub(crate) fn check(&self) -> Result<(), TrainingError> {
        fraction("the dropout ratio", self.ratio)
    }
}
