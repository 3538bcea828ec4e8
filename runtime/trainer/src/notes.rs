//! What a tuned model says about itself, in its ONNX metadata.

use crate::TrainerError;
use frostline_graph::{Model, Network};
use frostline_tensor::{DType, PixelSpec};

/// The metadata entry with the preprocessing a model was trained with: a JSON `PixelSpec`.
pub const PIXELS_KEY: &str = "frostline.pixels";
/// The metadata entry with the class names in the order of the model's outputs: a JSON list.
pub const CLASSES_KEY: &str = "frostline.classes";

/// The recipe for `model`'s input: `wanted`, else the model's own note, else ImageNet's for its input size.
pub(crate) fn pixels(
    model: &Model,
    network: &Network,
    wanted: Option<PixelSpec>,
) -> Result<PixelSpec, TrainerError> {
    let input = &network.input;
    let &[3, height, width] = input.shape.dims() else {
        let (name, shape) = (&input.name, &input.shape);
        let reason =
            format!("the model's input '{name}' takes {shape} a sample, not RGB images [3, height, width]");
        return Err(TrainerError::Pixels { reason });
    };
    if input.dtype != DType::F32 {
        let reason = format!(
            "the model's input '{}' is {}; export the network in f32",
            input.name, input.dtype
        );
        return Err(TrainerError::Pixels { reason });
    }
    let spec = match wanted {
        Some(spec) => spec,
        None => noted(model)?.unwrap_or_else(|| {
            let side = |side| u32::try_from(side).unwrap_or(u32::MAX);
            PixelSpec::imagenet(side(height), side(width))
        }),
    };
    check(&spec, network)?;
    Ok(spec)
}

/// Refuses a recipe whose crop is not the network's input.
pub(crate) fn check(spec: &PixelSpec, network: &Network) -> Result<(), TrainerError> {
    spec.check()?;
    let (crop, input) = (spec.sample_shape(), network.input.shape.dims());
    if crop.as_slice() == input {
        return Ok(());
    }
    let name = &network.input.name;
    let reason =
        format!("the recipe's crop is {crop:?} but the model's input '{name}' takes {input:?} a sample");
    Err(TrainerError::Pixels { reason })
}

fn noted(model: &Model) -> Result<Option<PixelSpec>, TrainerError> {
    let parse = |text: &str| serde_json::from_str(text);
    model
        .metadata(PIXELS_KEY)
        .map(parse)
        .transpose()
        .map_err(|error| TrainerError::Pixels {
            reason: format!("the model's metadata entry '{PIXELS_KEY}' cannot be read: {error}"),
        })
}

/// The class names the model carries.
pub(crate) fn classes(model: &Model) -> Option<Vec<String>> {
    serde_json::from_str(model.metadata(CLASSES_KEY)?).ok()
}

/// Writes both notes into the model.
pub(crate) fn write(model: &mut Model, pixels: Option<&PixelSpec>, classes: &[String]) {
    if let Some(text) = pixels.and_then(|spec| serde_json::to_string(spec).ok()) {
        model.set_metadata(PIXELS_KEY, &text);
    }
    if let Ok(text) = serde_json::to_string(classes) {
        model.set_metadata(CLASSES_KEY, &text);
    }
}
