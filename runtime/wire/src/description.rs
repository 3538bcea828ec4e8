use frostline_tensor::PixelSpec;
use serde::{Deserialize, Serialize};

/// What a guest says it does for a model: the answer of its `describe`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The guest's own name.
    pub name: String,
    /// The guest's own version.
    pub version: String,
    /// Where the network's input comes from.
    pub pixels: Pixels,
    /// The cuts it serves for this model.
    pub cuts: Vec<ServedCut>,
    /// Whether it loads augmented pixels where an extraction asks for them.
    #[serde(default, skip_serializing_if = "crate::messages::is_false")]
    pub augments: bool,
}

/// Where the network's input comes from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pixels {
    /// The host decodes and preprocesses by this recipe; the trainer can do the same, so `none` and `input` exist.
    Spec(PixelSpec),
    /// The guest makes its own input; only it can.
    Own,
}

/// One cut a guest serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedCut {
    /// The cut's tensor.
    pub name: String,
    /// What the guest returns for it.
    pub activation: Activation,
}

/// What a guest returns for a cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// The model's own activations; a middle part may follow.
    Faithful,
    /// Something of the guest's, of this shape per sample; it can only stand at the freeze cut.
    Own(Vec<usize>),
}
