use super::Suffix;
use super::step::training;
use crate::TrainerError;
use crate::standard::Standard;
use frostline_tensor::Tensor;
use frostline_training::{StateSlot, TrainingError};

/// All of a suffix that one step hands to the next, bit for bit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SuffixState {
    /// By their inputs, as the step holds them; without those that are zeros between two updates.
    pub(crate) slots: Vec<(String, Tensor)>,
    pub(crate) standard: Option<Standard>,
}

impl Suffix {
    /// What the next step begins with (copied).
    pub(crate) fn state(&self) -> Result<SuffixState, TrainerError> {
        let updated = self.counted()? == 0.0;
        let slots = self.slots.iter().filter(|slot| !(updated && slot.is_pending()));
        let held = |slot: &StateSlot| {
            Ok((
                slot.input.clone(),
                self.state.tensor(&slot.input).map_err(training)?,
            ))
        };
        Ok(SuffixState {
            slots: slots.map(held).collect::<Result<_, TrainerError>>()?,
            standard: self.standard.clone(),
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
            None if held.is_none() && slot.is_pending() => Ok(()),
            None => Err(TrainingError::State {
                slot: slot.input.clone(),
                expected: slot.initial.describe(),
                actual: held.map_or_else(|| "nothing".to_owned(), Tensor::describe),
            }),
        }
    }
}
