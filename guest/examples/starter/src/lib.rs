//! A guest for photos: it says how they become the network's input, and runs the network up to the split.
//!
//! Change [`spec`] to your network's preprocessing. What `describe` promises, `extract` must keep.

use frostline_guest::images::{self, PixelFormat};
use frostline_guest::{
    Activation, Activations, Description, Failure, FrozenPrefix, Job, ModelView, PixelSpec, Pixels, Sample,
    ServedCut, stage,
};

struct Guest;

/// How a photo becomes the network's input: its short side is resized, the center is cut out, colors are scaled to 0..1,
/// `mean` is subtracted and what remains divided by `std`, for red, green and blue.
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
    /// Is asked once for a model: what the guest does for it. Nothing is read or computed here.
    fn describe(model: ModelView, _parameters: String) -> Result<Description, Failure> {
        let served = |name| ServedCut {
            name,
            // The model's own activations, so the trainer can run the rest of the model on them.
            activation: Activation::Faithful,
        };
        Ok(Description {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            // The trainer can preprocess in the same way, so the splits `none` and `input` exist as well.
            pixels: Pixels::Spec(spec(&model.input_shape)?),
            cuts: model.cuts.into_iter().map(|cut| served(cut.name)).collect(),
        })
    }

    /// Is called again and again, each time with as many samples as the host sees fit, on an instance of its own.
    fn extract(samples: Vec<Sample>, job: Job) -> Result<Activations, Failure> {
        // The host reads and decodes, and augments where the job asks for it. `pixels` is a handle: the values never enter this
        // guest's memory.
        let loaded = images::load_augmented(&samples, spec(&job.input_shape)?, PixelFormat::Normalized)?;
        let tensor = stage::run(&job.stage, &job.input, loaded.pixels)?;
        // A photo that could not be read is named; the others go on.
        Ok(Activations {
            tensor,
            failed: loaded.failed,
        })
    }
}

frostline_guest::export!(Guest);
