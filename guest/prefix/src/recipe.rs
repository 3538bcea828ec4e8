use frostline_guest::{Failure, PixelSpec};
use serde::Deserialize;

/// The parameters as the user writes them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    resize: u32,
    crop_height: u32,
    crop_width: u32,
    mean: [f32; 3],
    std: [f32; 3],
}

/// The recipe in `parameters`, or ImageNet's for a model that takes `input` (`[3, height, width]`) when they are empty.
pub(crate) fn pixel_spec(input: &[u32], parameters: &str) -> Result<PixelSpec, Failure> {
    let &[3, height, width] = input else {
        return Err(Failure::invalid(format!(
            "the stock guest serves models that take RGB images, [3, height, width] per sample; this one takes {input:?}: write a \
             guest of your own for it"
        )));
    };
    let spec = if parameters.trim().is_empty() {
        imagenet(height, width)
    } else {
        parse(parameters)?
    };
    if (spec.crop_height, spec.crop_width) != (height, width) {
        return Err(Failure::invalid(format!(
            "the parameters crop to {}x{} but the model takes {height}x{width}: set crop_height and crop_width to these",
            spec.crop_height, spec.crop_width
        )));
    }
    Ok(spec)
}

/// ImageNet's usual recipe: the short side is 8/7 of the longer crop side (256 for 224).
fn imagenet(height: u32, width: u32) -> PixelSpec {
    let side = u64::from(height.max(width));
    PixelSpec {
        resize: u32::try_from((side * 8).div_ceil(7)).unwrap_or(u32::MAX),
        crop_height: height,
        crop_width: width,
        mean: (0.485, 0.456, 0.406),
        std: (0.229, 0.224, 0.225),
    }
}

fn parse(parameters: &str) -> Result<PixelSpec, Failure> {
    let Parameters { resize, crop_height, crop_width, mean: [mr, mg, mb], std: [sr, sg, sb] } =
        serde_json::from_str(parameters).map_err(|error| {
            Failure::invalid(format!(
                "the parameters are no pixel recipe: {error}; pass nothing, or a JSON object with resize, crop_height, crop_width, \
                 mean and std"
            ))
        })?;
    Ok(PixelSpec {
        resize,
        crop_height,
        crop_width,
        mean: (mr, mg, mb),
        std: (sr, sg, sb),
    })
}
