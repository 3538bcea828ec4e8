use frostline_guest::{ChannelOrder, Failure, Interpolation, PixelRecipe, PixelSpec, ResizeMode};
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

/// Returns the recipe in `parameters`, or the recipe of ImageNet if they are empty. `input` is the model's
/// input shape, `[3, height, width]`.
pub(crate) fn pixel_recipe(input: &[u32], parameters: &str) -> Result<PixelRecipe, Failure> {
    let &[3, height, width] = input else {
        return Err(Failure::invalid(format!(
            "the stock guest serves models that take RGB images, [3, height, width] per sample, but the input of this model is {input:?}: write a \
             guest for this model"
        )));
    };
    let recipe = if parameters.trim().is_empty() {
        imagenet(height, width)
    } else {
        parse(parameters)?
    };
    let spec = recipe.spec;
    if (spec.crop_height, spec.crop_width) != (height, width) {
        return Err(Failure::invalid(format!(
            "the parameters crop to {}x{} but the model takes {height}x{width}: set crop_height and crop_width to these",
            spec.crop_height, spec.crop_width
        )));
    }
    Ok(recipe)
}

/// Returns the usual recipe of ImageNet. It resizes the short side to 8/7 of the longer crop side, for
/// example to 256 for a crop of 224.
fn imagenet(height: u32, width: u32) -> PixelRecipe {
    let side = u64::from(height.max(width));
    let spec = PixelSpec {
        resize: u32::try_from((side * 8).div_ceil(7)).unwrap_or(u32::MAX),
        crop_height: height,
        crop_width: width,
        mean: (0.485, 0.456, 0.406),
        std: (0.229, 0.224, 0.225),
    };
    PixelRecipe {
        spec,
        interpolation: Interpolation::Bilinear,
        resize_mode: ResizeMode::Short,
        fill: (0, 0, 0),
        channels: ChannelOrder::Rgb,
    }
}

fn parse(parameters: &str) -> Result<PixelRecipe, Failure> {
    let parsed: Parameters = serde_json::from_str(parameters).map_err(|error| {
        Failure::invalid(format!(
            "invalid pixel recipe: {error}; pass no parameters or a JSON object with resize, crop_height, crop_width, \
             mean and std"
        ))
    })?;
    let spec = PixelSpec {
        resize: parsed.resize,
        crop_height: parsed.crop_height,
        crop_width: parsed.crop_width,
        mean: parsed.mean.into(),
        std: parsed.std.into(),
    };
    Ok(PixelRecipe {
        spec,
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
