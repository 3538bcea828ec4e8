use crate::values::{InferredValues, Literal};
use crate::{GraphError, Model};

/// A value's element type and dimensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueShape {
    /// ONNX's code of the element type. [`crate::onnx::data_type`] lists the values.
    pub data_type: i32,
    /// Dimensions, outermost first.
    pub dims: Vec<usize>,
}

/// Shapes of all values for a single batch size.
#[derive(Debug, Clone)]
pub struct Shapes(InferredValues);

impl Shapes {
    /// Returns the shape of the value. Returns `None` for unknown names and if the value depends on an
    /// unsupported operator.
    pub fn get(&self, name: &str) -> Option<ValueShape> {
        let value = self.0.get(name);
        Some(ValueShape {
            data_type: value.data_type,
            dims: value.dims.clone()?,
        })
    }

    /// Returns the dimensions of a value.
    pub fn dims(&self, name: &str) -> Option<&[usize]> {
        self.0.dims(name)
    }

    /// Returns the elements of a small integer value if they are known before execution. Examples are axes,
    /// sizes and results of shape computations.
    pub fn integers(&self, name: &str) -> Option<&[i64]> {
        self.0.get(name).literal.as_ref()?.integers()
    }

    /// Returns the elements of a small floating-point value if they are known before execution. An example is
    /// a factor computed from a shape.
    pub fn numbers(&self, name: &str) -> Option<&[f64]> {
        match self.0.get(name).literal.as_ref()? {
            Literal::Numbers(values) => Some(values),
            Literal::Integers(_) => None,
        }
    }
}

impl Model {
    /// Infers the shapes of all values, with every open axis of the inputs set to `batch`. It uses the rules
    /// of the operators and ignores the `value_info` of the file.
    ///
    /// # Errors
    /// Returns [`GraphError::Shape`] if the inputs of a node do not fit its operator at this batch size.
    pub fn shapes(&self, batch: usize) -> Result<Shapes, GraphError> {
        InferredValues::infer(self, batch).map(Shapes)
    }
}
