//! A guest for photos. It defines the preprocessing and runs the network up to the split.
//!
//! Change [`spec`] to the preprocessing of your network. `extract` must be consistent with the result of
//! `describe`.

use frostline_guest::images::{self, PixelFormat};
use frostline_guest::{
    Activation, Activations, Description, Failure, FrozenPrefix, Job, ModelView, PixelSpec, Pixels, Sample,
    ServedCut, stage,
};

struct Guest;

/// Preprocessing of a photo. The host resizes the short side, crops the center, scales colors to 0..1,
/// subtracts `mean` and divides by `std` for red, green and blue.
fn spec(input: &[u32]) -> Result<PixelSpec, Failure> {
    let &[3, height, width] = input else {
        return Err(Failure::invalid(format!(
            "this guest serves networks of RGB photos, [3, height, width] per sample, not {input:?}"
        )));
    };
    Ok(PixelSpec {
        resize: (height.max(width) * 8).div_ceil(7),
        crop_height: height,
        crop_width: width,
        mean: (0.485, 0.456, 0.406),
        std: (0.229, 0.224, 0.225),
    })
}

impl FrozenPrefix for Guest {
    /// Describes the guest for a model. Called once per model. Must not read objects or compute anything.
    fn describe(model: ModelView, _parameters: String) -> Result<Description, Failure> {
        let served = |name| ServedCut {
            name,
            // Activations of the model itself, so the trainer can run the rest of the model.
            activation: Activation::Faithful,
        };
        Ok(Description {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            // The trainer can compute the same pixels, so the splits `none` and `input` are also available.
            pixels: Pixels::Spec(spec(&model.input_shape)?),
            cuts: model.cuts.into_iter().map(|cut| served(cut.name)).collect(),
        })
    }

    /// Computes activations. The host chooses the number of samples and calls this function in a new instance
    /// each time.
    fn extract(samples: Vec<Sample>, job: Job) -> Result<Activations, Failure> {
        // The host reads and decodes the photos, and augments them if the job requests augmentation. `pixels`
        // is a handle: the values never enter this guest's memory.
        let loaded = images::load_augmented(&samples, spec(&job.input_shape)?, PixelFormat::Normalized)?;
        let tensor = stage::run(&job.stage, &job.input, loaded.pixels)?;
        // Report the photos that failed to load, and return activations of the others.
        Ok(Activations {
            tensor,
            failed: loaded.failed,
        })
    }
}

frostline_guest::export!(Guest);
