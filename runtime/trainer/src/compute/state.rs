use super::Suffix;
use super::step::training;
use crate::TrainerError;
use crate::standard::Standard;
use frostline_tensor::Tensor;
use frostline_training::{StateSlot, TrainingError};

/// Exact state of a suffix between two training steps.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SuffixState {
    /// State tensors with the step's input names. Omits pending slots if all of their values are zero.
    pub(crate) slots: Vec<(String, Tensor)>,
    pub(crate) standard: Option<Standard>,
}

impl Suffix {
    /// Copies the state for the next step.
    pub(crate) fn state(&self) -> Result<SuffixState, TrainerError> {
        let updated = self.pending_weight()? == 0.0;
        let slots = self.slots.iter().filter(|slot| !(updated && slot.is_pending()));
        Ok(SuffixState {
            slots: slots
                .map(|slot| {
                    Ok((
                        slot.input.clone(),
                        self.state.tensor(&slot.input).map_err(training)?,
                    ))
                })
                .collect::<Result<_, TrainerError>>()?,
            standard: self.standard.clone(),
        })
    }
}

impl SuffixState {
    /// Restores the initial value of `slot` from this state. Pending slots are optional.
    ///
    /// # Errors
    /// Returns [`TrainingError::State`] if the tensor is missing, or if type or shape differ.
    pub(super) fn restore(&self, slot: &mut StateSlot) -> Result<(), TrainingError> {
        let held = self.slots.iter().find(|(input, _)| *input == slot.input);
        let held = held.map(|(_, tensor)| tensor);
        match held
            .filter(|tensor| tensor.dtype() == slot.initial.dtype() && tensor.shape() == slot.initial.shape())
        {
            Some(tensor) => {
                slot.initial = tensor.clone();
                Ok(())
            }
            None if held.is_none() && slot.is_pending() => Ok(()),
            None => Err(TrainingError::State {
                slot: slot.input.clone(),
                expected: slot.initial.describe(),
                actual: held.map_or_else(|| "nothing".to_owned(), Tensor::describe),
            }),
        }
    }
}
