use super::Suffix;
use super::step::training;
use crate::TrainerError;
use crate::standard::Standard;
use frostline_tensor::Tensor;
use frostline_training::{StateSlot, TrainingError};
use std::collections::BTreeSet;

/// All of a suffix that one step hands to the next, bit for bit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SuffixState {
    /// By their inputs, as the step holds them.
    pub(crate) slots: Vec<(String, Tensor)>,
    pub(crate) standard: Option<Standard>,
    /// Weights that are convolved by Winograd's way, which was measured and may come out otherwise the next time.
    pub(crate) winograd: BTreeSet<String>,
}

impl Suffix {
    /// What the next step begins with (copied).
    pub(crate) fn state(&self) -> Result<SuffixState, TrainerError> {
        Ok(SuffixState {
            slots: self.state.tensors().map_err(training)?,
            standard: self.standard.clone(),
            winograd: self.settings.winograd.clone(),
        })
    }
}

impl SuffixState {
    /// Has `slot` begin with what is held for it here.
    ///
    /// # Errors
    /// [`TrainingError::State`] where that is nothing, or something else.
    pub(super) fn put(&self, slot: &mut StateSlot) -> Result<(), TrainingError> {
        let held = self.slots.iter().find(|(input, _)| *input == slot.input);
        let fits = |tensor: &&Tensor| {
            tensor.dtype() == slot.initial.dtype() && tensor.shape() == slot.initial.shape()
        };
        let held = held.map(|(_, tensor)| tensor);
        match held.filter(fits) {
            Some(tensor) => {
                slot.initial = tensor.clone();
                Ok(())
            }
            None => Err(TrainingError::State {
                slot: slot.input.clone(),
                expected: slot.initial.describe(),
                actual: held.map_or_else(|| "nothing".to_owned(), Tensor::describe),
            }),
        }
    }
}
