//! ONNX metadata of tuned models.

use crate::evaluation::Division;
use crate::setup::TrainedImages;
use crate::{Guest, Quality, TrainerError};
use frostline_client::{SampleFiles, Task};
use frostline_graph::{Model, Network};
use frostline_job::{Channels, PREPROCESSOR_CONFIG, PixelFlags, PixelSource, StatedPixels};
use frostline_tensor::{DType, PixelSpec};
use frostline_wire::Split;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

/// Metadata entry for the preprocessing used in training, a JSON `PixelSpec`. For input from a custom guest,
/// it contains the guest's name, SHA-256 and parameters, the freeze cut and the split.
pub(crate) const PIXELS_KEY: &str = "frostline.pixels";
/// Metadata entry set while the preprocessing comes from a file next to the model.
const BESIDE_KEY: &str = "frostline.pixels.beside";
/// Metadata entry for class names, as a JSON list in output order.
pub(crate) const CLASSES_KEY: &str = "frostline.classes";
/// Metadata entry for label names, for samples with several labels. Same format.
pub(crate) const LABELS_KEY: &str = "frostline.labels";
/// Metadata entry for target names, for regression. Same format.
pub(crate) const TARGETS_KEY: &str = "frostline.targets";

/// Metadata entry for the division of the data, as JSON. Not set if the data came divided.
pub(crate) const DIVISION_KEY: &str = "frostline.division";

/// Metadata entry for the images of the training, as JSON. Includes earlier jobs, if their layers were kept.
const TRAINED_KEY: &str = "frostline.trained";

/// Metadata entry for the cut after which layers were trained. Includes earlier jobs, if their layers were kept.
const FREEZE_KEY: &str = "frostline.freeze";

/// Metadata entry for the validation quality with frozen layers in int8, an [`Int8Note`].
const INT8_KEY: &str = "frostline.int8";

/// Validation quality after training with frozen layers in int8.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Int8Note {
    /// Quality on the validation images. Uses the keys of `eval --json`.
    pub validation: Value,
    /// The same quality as text.
    pub text: String,
}

impl Int8Note {
    pub(crate) fn new(validation: Quality) -> Self {
        Self {
            validation: serde_json::to_value(validation).unwrap_or_default(),
            text: validation.to_string(),
        }
    }

    /// Reads the note from the metadata of `model`.
    pub(crate) fn read(model: &Model) -> Option<Self> {
        serde_json::from_str(model.metadata(INT8_KEY)?).ok()
    }

    /// Writes the note to the metadata of `model`.
    pub(crate) fn write(&self, model: &mut Model) {
        write_json(model, INT8_KEY, self);
    }
}

/// Writes an entry as JSON.
fn write_json(model: &mut Model, key: &str, entry: &impl Serialize) {
    if let Ok(text) = serde_json::to_string(entry) {
        model.set_metadata(key, &text);
    }
}

/// Source of the network's input during training.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum ModelInput {
    /// Images, preprocessed with a recipe that host and trainer know.
    Pixels(PixelSpec),
    Guest(TrainingGuest),
}

/// Guest used for the training rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrainingGuest {
    pub(crate) guest: String,
    pub(crate) sha256: String,
    pub(crate) parameters: String,
    /// The freeze cut.
    pub(crate) freeze: String,
    /// Split of the rows.
    pub(crate) split: Split,
}

impl TrainingGuest {
    /// Returns a warning if this hash or these parameters differ from those used in training.
    pub(crate) fn differs(&self, sha256: &str, parameters: &str) -> Option<String> {
        let Self { guest, .. } = self;
        if self.sha256 != sha256 {
            return Some(format!(
                "the model was trained with the guest '{guest}' (SHA-256 {}), this guest has {sha256}; the input may differ",
                self.sha256
            ));
        }
        (self.parameters != parameters).then(|| {
            format!(
                "the guest '{guest}' had the parameters {:?} in training and now has {parameters:?}; the input may differ",
                self.parameters
            )
        })
    }
}

/// Checks that the network has one `f32` input. Only a custom guest computes several inputs, and inputs of integers.
pub(crate) fn check_takes_images(model: &Model) -> Result<(), TrainerError> {
    let Some(inputs) = model.joint_inputs() else {
        return Ok(());
    };
    let reason = match inputs.as_slice() {
        [image] if matches!(image.dtype(), DType::F16 | DType::Bf16 | DType::F64) => format!(
            "the model's input '{}' is {}; export the network after `model.float()`, with an example input of torch.float32",
            image.name,
            image.type_name()
        ),
        [image] if image.shape.dims().len() == 3 => format!(
            "the model's input '{}' is {}; export the network for f32 images, without its own division by 255 and \
             normalization",
            image.name,
            image.type_name()
        ),
        _ => {
            let inputs: Vec<String> = inputs
                .iter()
                .map(|input| format!("{} ({}{})", input.name, input.type_name(), input.shape))
                .collect();
            format!(
                "model inputs are {} instead of images; write a guest that reads these from the objects, and train with \
                 that guest",
                inputs.join(", ")
            )
        }
    };
    Err(TrainerError::Pixels { reason })
}

/// Returns the preprocessing of `model`, with the source of the recipe. Flags take precedence over the
/// model's metadata, and both over ImageNet's recipe for the input size, without normalization if the network
/// normalizes its input. `guest` is true if a custom guest makes the input.
///
/// # Errors
/// Returns [`TrainerError::GuestNeeded`] if a guest made the input in training and `guest` is false. Returns
/// [`TrainerError::Pixels`] if the network does not take f32 RGB images, the crop has a different size, or the
/// recipe or the metadata are invalid.
pub(crate) fn pixels(
    model: &Model,
    network: &Network,
    flags: &PixelFlags,
    guest: bool,
) -> Result<(PixelSpec, PixelSource), TrainerError> {
    let input = &network.input;
    check_takes_images(model)?;
    let &[3, height, width] = input.shape.dims() else {
        let name = &input.name;
        let shape = &input.shape;
        let reason = format!(
            "the model's input '{name}' takes {shape} per sample; it must take RGB images [3, height, width]: export it without \
             its `permute`, from TensorFlow with tf2onnx's `--inputs-as-nchw {name}`"
        );
        return Err(TrainerError::Pixels { reason });
    };
    let (usual, source) = match self::input(model)? {
        Some(ModelInput::Pixels(spec)) if model.metadata(BESIDE_KEY).is_some() => (spec, PixelSource::Beside),
        Some(ModelInput::Pixels(spec)) => (spec, PixelSource::Model),
        Some(ModelInput::Guest(trained)) if !guest => {
            return Err(TrainerError::GuestNeeded {
                guest: trained.guest,
                sha256: trained.sha256,
            });
        }
        _ => pixels_without_record(model, height, width),
    };
    let (spec, source) = if flags.is_empty() {
        (usual, source)
    } else {
        (flags.apply_to(usual), flags.source())
    };
    check(&spec, network)?;
    Ok((spec, source))
}

/// Returns the preprocessing of a model that records none: the ImageNet recipe, without the normalization if the
/// network normalizes its input.
fn pixels_without_record(model: &Model, height: usize, width: usize) -> (PixelSpec, PixelSource) {
    let [height, width] = [height, width].map(|side| u32::try_from(side).unwrap_or(u32::MAX));
    let spec = PixelSpec::imagenet(height, width);
    match model.input_normalization() {
        Some(first) => (first.raw(spec), PixelSource::Network),
        None => (spec, PixelSource::Assumed),
    }
}

/// Returns the preprocessing as [`pixels`] does, or `None` if a custom guest makes the input and the network takes
/// other inputs than images.
pub(crate) fn pixels_of_job(
    model: &Model,
    network: &Network,
    flags: &PixelFlags,
    guest: &Guest,
) -> Result<Option<(PixelSpec, PixelSource)>, TrainerError> {
    let is_custom = guest.takes() == SampleFiles::All;
    if is_custom && flags.is_empty() && !matches!(network.input.shape.dims(), [3, _, _]) {
        return Ok(None);
    }
    pixels(model, network, flags, is_custom).map(Some)
}

/// Returns the parameters that `guest` receives: those of the user if set, otherwise the preprocessing for images,
/// and nothing for other inputs.
pub(crate) fn parameters(guest: &Guest, pixels: Option<&PixelSpec>) -> Result<String, TrainerError> {
    match (&guest.parameters, pixels) {
        (Some(own), _) => Ok(own.clone()),
        (None, Some(pixels)) => recipe(pixels),
        (None, None) => Ok(String::new()),
    }
}

/// Returns a warning if `recipe` normalizes pixels that the first layers of `model` normalize as well. Recipes
/// in the metadata of a model are those of its training, and are not questioned.
pub fn normalized_twice(model: &Model, recipe: &PixelSpec, source: PixelSource) -> Option<String> {
    match source {
        PixelSource::Flags | PixelSource::File | PixelSource::Beside => {}
        PixelSource::Model | PixelSource::Network | PixelSource::Assumed => return None,
    }
    let first = model.input_normalization()?;
    let raw = first.raw(*recipe);
    if is_close(recipe.mean, raw.mean) && is_close(recipe.std, raw.std) {
        return None;
    }
    Some(format!(
        "the first layers of the network ({}) normalize pixels from 0 to {}, and the preprocessing {source} normalizes them before that; \
         the network expects raw pixels, which have mean {} and std {}",
        first.layers.join(", "),
        first.white,
        Channels(raw.mean),
        Channels(raw.std)
    ))
}

fn is_close(ours: [f32; 3], raw: [f32; 3]) -> bool {
    ours.into_iter().zip(raw).all(|(a, b)| (a - b).abs() < 1e-5)
}

/// Copies the preprocessing from `preprocessor_config.json` next to `file` to the metadata of the model,
/// unless the metadata already has an entry or `flags` name a file.
///
/// # Errors
/// Returns [`TrainerError::Pixels`] if the file cannot be used and no flags are set.
pub fn read_pixels_beside(model: &mut Model, file: &Path, flags: &PixelFlags) -> Result<(), TrainerError> {
    let beside = file.with_file_name(PREPROCESSOR_CONFIG);
    if model.metadata(PIXELS_KEY).is_some() || flags.pixels.is_some() || !beside.exists() {
        return Ok(());
    }
    match StatedPixels::from_file(&beside) {
        Ok(StatedPixels(spec)) => {
            model.set_metadata(PIXELS_KEY, &recipe(&spec)?);
            model.set_metadata(BESIDE_KEY, PREPROCESSOR_CONFIG);
            Ok(())
        }
        Err(_) if !flags.is_empty() => Ok(()),
        Err(reason) => Err(TrainerError::Pixels {
            reason: format!("cannot use {}: {reason}", beside.display()),
        }),
    }
}

/// Returns the preprocessing that hosts apply for `model`. The source is [`PixelSource::Assumed`] if neither
/// `flags` nor the model specify a recipe.
///
/// # Errors
/// Returns an error if the model does not take images, or the recipe does not match the input.
pub fn input_pixels(model: &Model, flags: &PixelFlags) -> Result<(PixelSpec, PixelSource), TrainerError> {
    pixels(model, &model.network()?, flags, false)
}

/// Serializes a recipe for guests and model metadata.
pub(crate) fn recipe(spec: &PixelSpec) -> Result<String, TrainerError> {
    serde_json::to_string(spec).map_err(|error| TrainerError::Pixels {
        reason: format!("cannot write it as JSON: {error}"),
    })
}

/// Refuses a recipe if the crop does not match the network's input.
pub(crate) fn check(spec: &PixelSpec, network: &Network) -> Result<(), TrainerError> {
    spec.check().map_err(|error| TrainerError::Pixels {
        reason: error.to_string(),
    })?;
    let crop = spec.sample_shape();
    let input = network.input.shape.dims();
    if crop.as_slice() == input {
        return Ok(());
    }
    let name = &network.input.name;
    let reason = format!("the crop is {crop:?}, the model's input '{name}' takes {input:?} per sample");
    Err(TrainerError::Pixels { reason })
}

/// Reads the source of the network's input from the model's metadata.
pub(crate) fn input(model: &Model) -> Result<Option<ModelInput>, TrainerError> {
    let Some(text) = model.metadata(PIXELS_KEY) else {
        return Ok(None);
    };
    let parsed = match serde_json::from_str(text) {
        Ok(noted) => Ok(ModelInput::Guest(noted)),
        Err(_) => serde_json::from_str(text).map(ModelInput::Pixels),
    };
    parsed.map(Some).map_err(|error| TrainerError::Pixels {
        reason: format!("cannot read the model's metadata entry '{PIXELS_KEY}': {error}"),
    })
}

/// Reads the task and the output names from the model's metadata.
pub(crate) fn outputs(model: &Model) -> Option<(Task, Vec<String>)> {
    [Task::Classes, Task::Labels, Task::Numbers]
        .into_iter()
        .find_map(|task| Some((task, serde_json::from_str(model.metadata(key(task))?).ok()?)))
}

fn key(task: Task) -> &'static str {
    match task {
        Task::Classes => CLASSES_KEY,
        Task::Labels => LABELS_KEY,
        Task::Numbers => TARGETS_KEY,
    }
}

/// Reads the division of the data from the model's metadata.
pub(crate) fn division(model: &Model) -> Option<Division> {
    serde_json::from_str(model.metadata(DIVISION_KEY)?).ok()
}

/// Reads the images of the training from the model's metadata.
pub(crate) fn trained_images(model: &Model) -> Option<TrainedImages> {
    serde_json::from_str(model.metadata(TRAINED_KEY)?).ok()
}

/// Reads the cut after which layers were trained from the model's metadata. `None` if the model was
/// not tuned, or by version 0.2 or earlier.
pub(crate) fn trained_after(model: &Model) -> Option<String> {
    model.metadata(FREEZE_KEY).map(str::to_owned)
}

/// Description of a training for the metadata of the tuned model.
pub(crate) struct TrainingRecord {
    pub(crate) input: ModelInput,
    pub(crate) task: Task,
    /// Names of the outputs.
    pub(crate) names: Vec<String>,
    pub(crate) division: Option<Division>,
    pub(crate) trained_images: TrainedImages,
    /// The cut after which layers were trained.
    pub(crate) trained_after: String,
}

/// Writes all entries to the model's metadata and removes outdated ones.
pub(crate) fn write(model: &mut Model, record: &TrainingRecord) {
    for stale in [
        CLASSES_KEY,
        LABELS_KEY,
        TARGETS_KEY,
        DIVISION_KEY,
        BESIDE_KEY,
        INT8_KEY,
    ] {
        model.remove_metadata(stale);
    }
    write_json(model, PIXELS_KEY, &record.input);
    write_json(model, key(record.task), &record.names);
    if let Some(division) = &record.division {
        write_json(model, DIVISION_KEY, division);
    }
    write_json(model, TRAINED_KEY, &record.trained_images);
    model.set_metadata(FREEZE_KEY, &record.trained_after);
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_graph::build::{Axis, batched, int, model, node, value};
    use frostline_graph::onnx::{GraphProto, data_type};

    /// Returns the error for a network with one input.
    fn refused(code: i32, dims: &[usize]) -> String {
        let axes: Vec<Axis> = std::iter::once(Axis::batch())
            .chain(dims.iter().map(|&size| Axis::Fixed(size)))
            .collect();
        let float = int("to", data_type::FLOAT.into());
        let graph = GraphProto {
            node: vec![node("Cast", &["x"], &["y"]).with([float])],
            input: vec![value("x", code, &axes)],
            output: vec![batched("y", dims)],
            ..GraphProto::default()
        };
        let network = Model::from_proto(model(17, graph)).unwrap();
        check_takes_images(&network.with_joint_input().unwrap())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn inputs_of_other_types_are_refused_with_the_way_to_export_them() {
        for code in [data_type::FLOAT16, data_type::DOUBLE] {
            let error = refused(code, &[3, 8, 8]);
            assert!(
                error.contains("export the network after `model.float()`"),
                "{error}"
            );
        }
        let bytes = refused(data_type::UINT8, &[3, 8, 8]);
        assert!(bytes.contains("export the network for f32 images"), "{bytes}");
        let ids = refused(data_type::INT64, &[16]);
        assert!(ids.contains("write a guest"), "{ids}");
    }
}
