use frostline_engine::Device;
use frostline_graph::Model;
use frostline_job::PixelFlags;
use std::path::PathBuf;

/// Settings of `frostline predict`.
#[derive(Debug, Clone)]
pub struct PredictionJob {
    /// The network, usually a tuned model with class names and preprocessing in the metadata. Outputs without
    /// names are called `output N`, counted from 0.
    pub model: Model,
    /// Images, and folders with images. Not used with a guest.
    pub paths: Vec<PathBuf>,
    /// Maximum number of classes reported per image.
    pub top: usize,
    /// Images per forward pass.
    pub batch: usize,
    /// Preprocessing. Unset values default to the model's metadata, or to the ImageNet recipe.
    pub pixels: PixelFlags,
    /// Device that executes the network.
    pub device: Device,
    /// Number of decoder threads and engine threads; 0 uses all cores.
    pub threads: usize,
    /// Maximum number of pixels of an image. `None` selects the default of [`DecodeLimits`].
    pub image_pixels: Option<u64>,
}
