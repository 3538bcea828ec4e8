use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

/// How values between pixels are computed, as Pillow and torchvision do it on Pillow images: antialiased, but for the nearest.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Interpolation {
    /// The pixel whose center is nearest.
    Nearest,
    /// A triangle over two pixels.
    #[default]
    Bilinear,
    /// Cubic with a = -0.5 over four pixels.
    Bicubic,
    /// Lanczos over six pixels.
    Lanczos,
}

/// What the sizes of a [`PixelSpec`](crate::PixelSpec) mean.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ResizeMode {
    /// The short side becomes `resize`, the shape stays.
    #[default]
    Short,
    /// The image becomes as the crop is shaped, with `resize` as its short side, whatever its own shape.
    Squash,
    /// The image fits into what [`Self::Squash`] would make of it, its shape stays, and the rest is filled.
    Pad,
}

/// The order of a network's channels.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
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
