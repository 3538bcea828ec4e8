use frostline_guest::{ChannelOrder, Error, Interpolation, Recipe, ResizeMode, TensorInfo, image_size};
use serde::Deserialize;

/// Parameters of the job.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    resize: u32,
    crop_height: u32,
    crop_width: u32,
    mean: [f32; 3],
    std: [f32; 3],
    #[serde(default)]
    interpolation: Between,
    #[serde(default)]
    resize_mode: Mode,
    #[serde(default)]
    fill: [u8; 3],
    #[serde(default)]
    channels: Order,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum Between {
    Nearest,
    #[default]
    Bilinear,
    Bicubic,
    Lanczos,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Short,
    Squash,
    Pad,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum Order {
    #[default]
    Rgb,
    Bgr,
}

/// Returns the recipe in `parameters`, or the recipe of ImageNet if they are empty. `inputs` are the inputs of
/// the model.
pub(crate) fn recipe(inputs: &[TensorInfo], parameters: &str) -> Result<Recipe, Error> {
    let (height, width) = image_size(inputs)?;
    let recipe = if parameters.trim().is_empty() {
        Recipe::imagenet(height, width)
    } else {
        parse(parameters)?
    };
    if (recipe.crop_height, recipe.crop_width) != (height, width) {
        return Err(Error::invalid(format!(
            "the parameters crop to {}x{} but the model takes {height}x{width}: set crop_height and crop_width to these",
            recipe.crop_height, recipe.crop_width
        )));
    }
    Ok(recipe)
}

fn parse(parameters: &str) -> Result<Recipe, Error> {
    let parsed: Parameters = serde_json::from_str(parameters).map_err(|error| {
        Error::invalid(format!(
            "invalid pixel recipe: {error}; pass no parameters or a JSON object with resize, crop_height, crop_width, \
             mean and std"
        ))
    })?;
    Ok(Recipe {
        resize: parsed.resize,
        crop_height: parsed.crop_height,
        crop_width: parsed.crop_width,
        mean: parsed.mean.into(),
        std: parsed.std.into(),
        interpolation: match parsed.interpolation {
            Between::Nearest => Interpolation::Nearest,
            Between::Bilinear => Interpolation::Bilinear,
            Between::Bicubic => Interpolation::Bicubic,
            Between::Lanczos => Interpolation::Lanczos,
        },
        resize_mode: match parsed.resize_mode {
            Mode::Short => ResizeMode::Short,
            Mode::Squash => ResizeMode::Squash,
            Mode::Pad => ResizeMode::Pad,
        },
        fill: parsed.fill.into(),
        channels: match parsed.channels {
            Order::Rgb => ChannelOrder::Rgb,
            Order::Bgr => ChannelOrder::Bgr,
        },
    })
}
