use crate::standard::Standard;
use frostline_tensor::Tensor;
use frostline_training::{StateSlot, TrainingError};

/// Exact state of a suffix between two training steps.
#[derive(Debug, Clone, PartialEq)]
pub struct SuffixState {
    /// State tensors with the step's input names. Omits pending slots if all of their values are zero.
    pub slots: Vec<(String, Tensor)>,
    /// Standardization of features, once known.
    pub standard: Option<Standard>,
}

impl SuffixState {
    /// Restores the initial value of `slot` from this state. Pending slots are optional.
    ///
    /// # Errors
    /// Returns [`TrainingError::State`] if the tensor is missing, or if type or shape differ.
    pub(crate) fn restore(&self, slot: &mut StateSlot) -> Result<(), TrainingError> {
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
