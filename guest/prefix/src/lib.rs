//! The stock guest. It preprocesses photos like torchvision and runs any image model up to any cut, so most
//! users do not need to write a guest.
//!
//! Without parameters it uses the preprocessing of ImageNet at the model's input size. Otherwise the
//! parameters are a JSON object with the fields `resize`, `crop_height`, `crop_width`, `mean` and `std`.
//! Optional fields are `interpolation` (`bilinear`, `bicubic`, `lanczos`, `nearest`), `resize_mode` (`short`,
//! `squash`, `pad`), `fill` (three bytes) and `channels` (`rgb`, `bgr`).

mod recipe;

use frostline_guest::{Description, Error, Extracted, FrozenPrefix, Job, Model, PixelFormat, images};

struct Prefix;

impl FrozenPrefix for Prefix {
    fn describe(model: Model, parameters: String, description: &Description) -> Result<(), Error> {
        description.set_name("prefix", env!("CARGO_PKG_VERSION"));
        description.set_media_types(&["image/*".to_owned()])?;
        description.set_recipe(recipe::recipe(&model.inputs, &parameters)?)?;
        description.serve_all(&model)
    }

    fn extract(job: Job) -> Result<Extracted, Error> {
        let recipe = recipe::recipe(&job.inputs, &job.parameters)?;
        let loaded = images::load(&job.samples, recipe, PixelFormat::Normalized)?;
        job.run(vec![loaded.pixels], loaded.failed)
    }
}

frostline_guest::export!(Prefix);
