//! The stock guest. It preprocesses photos like torchvision and runs any image model up to any cut, so most
//! users do not need to write a guest.
//!
//! Without parameters it uses the preprocessing of ImageNet at the model's input size. Otherwise the
//! parameters are a JSON object with the fields `resize`, `crop_height`, `crop_width`, `mean` and `std`.
//! Optional fields are `interpolation` (`bilinear`, `bicubic`, `lanczos`, `nearest`), `resize_mode` (`short`,
//! `squash`, `pad`), `fill` (three bytes) and `channels` (`rgb`, `bgr`).

mod recipe;

use frostline_guest::images::{self, PixelFormat};
use frostline_guest::{
    Activation, Activations, Description, Failure, FrozenPrefix, Job, ModelView, Pixels, Sample, ServedCut,
    stage,
};

struct Prefix;

impl FrozenPrefix for Prefix {
    fn describe(model: ModelView, parameters: String) -> Result<Description, Failure> {
        let recipe = recipe::pixel_recipe(&model.input_shape, &parameters)?;
        images::describe_recipe(recipe)?;
        let cuts = model.cuts.into_iter();
        Ok(Description {
            name: "prefix".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pixels: Pixels::Spec(recipe.spec),
            cuts: cuts
                .map(|cut| ServedCut {
                    name: cut.name,
                    activation: Activation::Faithful,
                })
                .collect(),
        })
    }

    fn extract(samples: Vec<Sample>, job: Job) -> Result<Activations, Failure> {
        let recipe = recipe::pixel_recipe(&job.input_shape, &job.parameters)?;
        let loaded = images::load_recipe(&samples, recipe, PixelFormat::Normalized)?;
        let tensor = stage::run(&job.stage, &job.input, loaded.pixels)?;
        Ok(Activations {
            tensor,
            failed: loaded.failed,
        })
    }
}

frostline_guest::export!(Prefix);
