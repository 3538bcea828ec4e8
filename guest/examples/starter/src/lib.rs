//! A guest for photos. It defines the preprocessing and runs the network up to the split.
//!
//! Change [`recipe`] to the preprocessing of your network. `extract` must be consistent with the description.

use frostline_guest::{
    Description, Error, Extracted, FrozenPrefix, Job, Model, PixelFormat, Recipe, TensorInfo, image_size,
    images,
};

struct Guest;

/// Preprocessing of a photo. The host resizes the short side, crops the center, scales colors to 0..1,
/// subtracts `mean` and divides by `std` for red, green and blue.
fn recipe(inputs: &[TensorInfo]) -> Result<Recipe, Error> {
    let (height, width) = image_size(inputs)?;
    Ok(Recipe {
        mean: (0.485, 0.456, 0.406),
        std: (0.229, 0.224, 0.225),
        ..Recipe::imagenet(height, width)
    })
}

impl FrozenPrefix for Guest {
    /// Describes the guest for a model. Called once per model. Must not read objects or compute anything.
    fn describe(model: Model, _parameters: String, description: &Description) -> Result<(), Error> {
        description.set_name(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        description.set_media_types(&["image/*".to_owned()])?;
        // The trainer can compute the same pixels, so the splits `none` and `input` are also available.
        description.set_recipe(recipe(&model.inputs)?)?;
        // Activations of the model itself, so the trainer can run the rest of the model.
        description.serve_all(&model)
    }

    /// Computes activations. The host chooses the number of samples and calls this function in a new instance
    /// each time.
    fn extract(job: Job) -> Result<Extracted, Error> {
        // The host reads and decodes the photos, and augments them if the job requests augmentation. `pixels`
        // is a handle: the values never enter this guest's memory.
        let loaded = images::load(&job.samples, recipe(&job.inputs)?, PixelFormat::Normalized)?;
        // Photos that failed to load are reported, and the others have activations.
        job.run(vec![loaded.pixels], loaded.failed)
    }
}

frostline_guest::export!(Guest);
