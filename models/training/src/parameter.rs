use crate::tape::{TensorForm, Value};

/// A weight that the step updates.
pub(crate) struct Parameter<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: Value,
    /// Form of the state slot.
    pub(crate) form: TensorForm,
    /// Input of the state slot.
    pub(crate) slot: String,
    /// Shape of the state slot.
    pub(crate) slot_dims: Vec<usize>,
}
