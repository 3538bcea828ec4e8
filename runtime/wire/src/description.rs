use frostline_tensor::{DType, PixelSpec, Shape};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Description of a guest for a model. Returned by the guest's `describe`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Description {
    /// Name of the guest.
    pub name: String,
    /// Version of the guest.
    pub version: String,
    /// Source of the network's input.
    pub pixels: Pixels,
    /// Available cuts for this model.
    pub cuts: Vec<ServedCut>,
    /// Media types of the objects that the guest reads, such as `image/*`. Empty if it accepts all objects.
    pub media_types: Vec<String>,
    /// Maximum number of samples of a call. `None` if the host decides.
    pub max_samples: Option<u32>,
}

impl Description {
    /// Returns true if the pixels can be augmented, which requires that the host loads them.
    pub fn augments(&self) -> bool {
        matches!(self.pixels, Pixels::Spec(_))
    }
}

/// Name and type of a tensor of a sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TensorInfo {
    /// Name of the tensor.
    pub name: String,
    /// Element type.
    #[schemars(with = "String")]
    pub dtype: DType,
    /// Shape of one sample.
    pub shape: Vec<usize>,
}

impl TensorInfo {
    /// Returns the shape of a row that contains `tensors`. A single tensor keeps its shape, and several are
    /// flattened and joined. Returns `None` for no tensors, or if the number of elements overflows.
    pub fn row_shape(tensors: &[Self]) -> Option<Shape> {
        match tensors {
            [] => None,
            [tensor] => tensor.elements().map(|_| Shape::new(tensor.shape.clone())),
            tensors => {
                let mut joined = 0_usize;
                for tensor in tensors {
                    joined = joined.checked_add(tensor.elements()?)?;
                }
                Some(Shape::new([joined]))
            }
        }
    }

    /// Returns the number of elements, or `None` if it overflows.
    fn elements(&self) -> Option<usize> {
        Shape::new(self.shape.clone()).elements().ok()
    }
}

/// Source of the network's input.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pixels {
    /// The host decodes and preprocesses with this recipe. The trainer can do the same, so the splits `none`
    /// and `input` are available.
    Spec(PixelSpec),
    /// The guest computes the input, and trainers cannot reproduce it.
    Own,
}

/// Cut supported by a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServedCut {
    /// Tensor name of the cut.
    pub name: String,
    /// Output of the guest at this cut.
    pub activation: Activation,
}

/// Output of a guest at a cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// The activations of the model. A middle can follow.
    Faithful,
    /// Other tensors, joined into one row. Only supported at the freeze cut.
    Custom(Vec<TensorInfo>),
}
