use crate::values::{Literal, Values};
use crate::{GraphError, Model};

/// A value's element type and dimensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueShape {
    /// ONNX's code of the element type, one of [`crate::onnx::data_type`].
    pub data_type: i32,
    /// The dimensions, outermost first.
    pub dims: Vec<usize>,
}

/// The shapes of a model's values at one batch size.
#[derive(Debug, Clone)]
pub struct Shapes(Values);

impl Shapes {
    /// The shape of the value called `name`; `None` for unknown names and behind operators this crate does not know.
    pub fn get(&self, name: &str) -> Option<ValueShape> {
        let value = self.0.get(name);
        Some(ValueShape {
            data_type: value.data_type,
            dims: value.dims.clone()?,
        })
    }

    /// The dimensions of the value called `name`.
    pub fn dims(&self, name: &str) -> Option<&[usize]> {
        self.0.dims(name)
    }

    /// The elements of a small integer value that is known before anything runs: axes, sizes, the result of a shape-computing chain.
    pub fn integers(&self, name: &str) -> Option<&[i64]> {
        self.0.get(name).literal.as_ref()?.integers()
    }

    /// The elements of a small floating-point value that is known before anything runs, such as a factor computed from a shape.
    pub fn numbers(&self, name: &str) -> Option<&[f64]> {
        match self.0.get(name).literal.as_ref()? {
            Literal::Numbers(values) => Some(values),
            Literal::Integers(_) => None,
        }
    }
}

impl Model {
    /// The shapes of all values when every open axis of the inputs is `batch`. Uses the operators' rules, never the
    /// file's own `value_info`.
    ///
    /// # Errors
    /// [`GraphError::Shape`] when a node's inputs do not fit its operator, also when they do not at this batch size.
    pub fn shapes(&self, batch: usize) -> Result<Shapes, GraphError> {
        Values::infer(self, batch).map(Shapes)
    }
}
