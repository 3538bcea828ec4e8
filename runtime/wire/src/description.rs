use frostline_tensor::PixelSpec;
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
    /// True if the guest supports augmentation.
    #[serde(default, skip_serializing_if = "crate::messages::is_false")]
    pub augments: bool,
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
    /// Other values with this shape per sample. Only supported at the freeze cut.
    Own(Vec<usize>),
}
