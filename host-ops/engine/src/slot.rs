use crate::tensor_spec::TensorSpec;
use crate::{EngineError, values};
use frostline_tensor::{DType, Shape};
use ort::value::{Outlet, ValueType};

/// Input or output as declared by the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSlot {
    /// The tensor's name.
    pub name: String,
    /// The element type. `None` if tensors of this project do not support it.
    pub dtype: Option<DType>,
    /// The dimensions, starting with the outermost. `None` is a dimension that can change between executions,
    /// such as the batch. Empty for scalars and for undeclared shapes.
    pub shape: Vec<Option<usize>>,
    kind: String,
}

impl TensorSlot {
    pub(crate) fn new(outlet: &Outlet) -> Self {
        let (dtype, shape) = match outlet.dtype() {
            ValueType::Tensor { ty, shape, .. } => (
                values::dtype(*ty),
                shape.iter().map(|&dim| usize::try_from(dim).ok()).collect(),
            ),
            _ => (None, Vec::new()),
        };
        Self {
            name: outlet.name().to_owned(),
            dtype,
            shape,
            kind: outlet.dtype().to_string(),
        }
    }

    /// Returns the type and shape for messages, such as `f32[?, 3, 224, 224]`.
    pub fn describe(&self) -> String {
        let Some(dtype) = self.dtype else {
            return self.kind.clone();
        };
        let dims: Vec<String> = self
            .shape
            .iter()
            .map(|dim| dim.map_or_else(|| "?".to_owned(), |size| size.to_string()))
            .collect();
        format!("{dtype}[{}]", dims.join(", "))
    }

    /// Returns the type and shape of this slot for a batch of `rows`. Returns `None` if the model does not
    /// declare them or declares another number of rows.
    pub(crate) fn batch_of(&self, rows: usize) -> Option<TensorSpec> {
        let (batch, row) = self.shape.split_first()?;
        let row: Vec<usize> = row.iter().copied().collect::<Option<_>>()?;
        let fits = batch.is_none_or(|batch| batch == rows);
        let shape = Shape::new(row).batched(rows);
        fits.then_some(TensorSpec {
            dtype: self.dtype?,
            shape,
        })
    }

    /// Checks the type and shape of a tensor for this slot.
    ///
    /// # Errors
    /// Returns [`EngineError::InputMismatch`] if they differ from the declared ones.
    pub(crate) fn check(&self, dtype: DType, shape: &Shape) -> Result<(), EngineError> {
        let dims = shape.dims();
        let same_rank = dims.len() == self.shape.len();
        let same_dims = self
            .shape
            .iter()
            .zip(dims)
            .all(|(want, have)| want.is_none_or(|want| want == *have));
        let shape_fits = self.shape.is_empty() || (same_rank && same_dims);
        if shape_fits && self.dtype == Some(dtype) {
            return Ok(());
        }
        Err(EngineError::InputMismatch {
            name: self.name.clone(),
            expected: self.describe(),
            actual: format!("{dtype}{shape}"),
        })
    }
}

/// Returns the slot called `name`, or the names of all slots for a message.
pub(crate) fn find<'a>(slots: &'a [TensorSlot], name: &str) -> Result<&'a TensorSlot, String> {
    let found = slots.iter().find(|slot| slot.name == name);
    found.ok_or_else(|| {
        let names = slots.iter().map(|slot| format!("`{}`", slot.name));
        names.collect::<Vec<_>>().join(", ")
    })
}
