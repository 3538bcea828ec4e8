use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};

/// Interpolation between pixels, equal to Pillow and to torchvision on Pillow images. All filters except
/// `Nearest` are antialiased.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, Display, EnumString, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Interpolation {
    /// Selects the pixel with the nearest center.
    Nearest,
    /// Triangle filter over two pixels.
    #[default]
    Bilinear,
    /// Cubic filter with a = -0.5 over four pixels.
    Bicubic,
    /// Lanczos filter over six pixels.
    Lanczos,
}

/// Meaning of `resize` in a [`PixelSpec`](crate::PixelSpec).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, Display, EnumString, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ResizeMode {
    /// Scales the short side to `resize` and keeps the aspect ratio.
    #[default]
    Short,
    /// Scales the image to the aspect ratio of the crop, ignoring its original aspect ratio. The short side
    /// becomes `resize`.
    Squash,
    /// Scales the image to fit into the size of [`Self::Squash`], keeps the aspect ratio and fills the rest.
    Pad,
}

/// Order of a network's color channels.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, Display, EnumString, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ChannelOrder {
    /// Red, green, blue.
    #[default]
    Rgb,
    /// Blue, green, red.
    Bgr,
}
