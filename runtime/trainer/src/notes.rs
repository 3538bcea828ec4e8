//! What a tuned model says about itself, in its ONNX metadata.

use crate::evaluation::Division;
use crate::{Quality, TrainerError};
use frostline_client::Task;
use frostline_graph::{Model, Network};
use frostline_job::{PREPROCESSOR_CONFIG, PixelFlags, PixelSource, StatedPixels};
use frostline_tensor::{DType, PixelSpec};
use frostline_wire::Split;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

/// The metadata entry with how the input was made that a model was trained with: a JSON `PixelSpec`; where only a guest can make it,
/// the guest's name, SHA-256 and parameters with where the network was frozen and divided.
pub(crate) const PIXELS_KEY: &str = "frostline.pixels";
/// Set where another file said it when the model was read.
const BESIDE_KEY: &str = "frostline.pixels.beside";
/// The metadata entry with the class names in the order of the model's outputs: a JSON list.
pub(crate) const CLASSES_KEY: &str = "frostline.classes";
/// The same of labels, of which a sample may have several.
pub(crate) const LABELS_KEY: &str = "frostline.labels";
/// The same of numbers.
pub(crate) const TARGETS_KEY: &str = "frostline.targets";

/// How the job divided its data, of data that did not come divided: JSON.
pub(crate) const DIVISION_KEY: &str = "frostline.division";

/// The validation quality with frozen layers in int8: an [`Int8Note`].
const INT8_KEY: &str = "frostline.int8";

/// Quality in a training whose frozen layers were in int8.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Int8Note {
    /// On the validation images, by the names of `eval --json`.
    pub validation: Value,
    /// The same for people.
    pub text: String,
}

impl Int8Note {
    pub(crate) fn new(validation: Quality) -> Self {
        Self {
            validation: serde_json::to_value(validation).unwrap_or_default(),
            text: validation.to_string(),
        }
    }

    /// Reads it from the metadata of `model`.
    pub(crate) fn read(model: &Model) -> Option<Self> {
        serde_json::from_str(model.metadata(INT8_KEY)?).ok()
    }

    /// Writes it to the metadata of `model`.
    pub(crate) fn write(&self, model: &mut Model) {
        if let Ok(text) = serde_json::to_string(self) {
            model.set_metadata(INT8_KEY, &text);
        }
    }
}

/// How a model's input was made for training.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Input {
    /// By a recipe that host and trainer know.
    Pixels(PixelSpec),
    /// By a guest, in its own way.
    Guest(TrainedWith),
}

/// The guest whose rows a model was trained on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrainedWith {
    /// Its name.
    pub(crate) guest: String,
    pub(crate) sha256: String,
    pub(crate) parameters: String,
    /// The cut up to which it ran the network's layers.
    pub(crate) freeze: String,
    /// Where its rows came from.
    pub(crate) split: Split,
}

impl TrainedWith {
    /// In what a guest of this hash, told these parameters, is another one; for people.
    pub(crate) fn differs(&self, sha256: &str, parameters: &str) -> Option<String> {
        let Self { guest, .. } = self;
        if self.sha256 != sha256 {
            return Some(format!(
                "the model was trained with the guest '{guest}' (SHA-256 {}), this one has {sha256}: its input may differ",
                self.sha256
            ));
        }
        (self.parameters != parameters).then(|| {
            format!(
                "the guest '{guest}' had the parameters {:?} in training and has {parameters:?} now: its input may differ",
                self.parameters
            )
        })
    }
}

/// The recipe for `model`'s input: what flags say, else the model's own note, else ImageNet's for its input size; and which of them.
///
/// # Errors
/// [`TrainerError::GuestNeeded`] where a guest made the input and there is no `guest` to make it again.
pub(crate) fn pixels(
    model: &Model,
    network: &Network,
    flags: &PixelFlags,
    guest: bool,
) -> Result<(PixelSpec, PixelSource), TrainerError> {
    let input = &network.input;
    let &[3, height, width] = input.shape.dims() else {
        let (name, shape) = (&input.name, &input.shape);
        let reason = format!(
            "the model's input '{name}' takes {shape} per sample; it must take RGB images [3, height, width]: export it without \
             its `permute`, from TensorFlow with tf2onnx's `--inputs-as-nchw {name}`"
        );
        return Err(TrainerError::Pixels { reason });
    };
    if input.dtype != DType::F32 {
        let change = match input.dtype {
            DType::F16 | DType::F64 => {
                "export the network after `model.float()`, with an example input of torch.float32"
            }
            _ => "export the network for f32 images, without its own division by 255 and normalization",
        };
        let reason = format!("the model's input '{}' is {}; {change}", input.name, input.dtype);
        return Err(TrainerError::Pixels { reason });
    }
    let usual = || {
        let side = |side| u32::try_from(side).unwrap_or(u32::MAX);
        PixelSpec::imagenet(side(height), side(width))
    };
    let (usual, source) = match self::input(model)? {
        Some(Input::Pixels(spec)) if model.metadata(BESIDE_KEY).is_some() => (spec, PixelSource::Beside),
        Some(Input::Pixels(spec)) => (spec, PixelSource::Model),
        Some(Input::Guest(trained)) if !guest => {
            return Err(TrainerError::GuestNeeded {
                guest: trained.guest,
                sha256: trained.sha256,
            });
        }
        _ => (usual(), PixelSource::Assumed),
    };
    let (spec, source) = if flags.is_empty() {
        (usual, source)
    } else {
        (flags.over(usual), flags.source())
    };
    check(&spec, network)?;
    Ok((spec, source))
}

/// Lets a model that does not say how its input is made say what `preprocessor_config.json` beside its `file` says.
///
/// # Errors
/// [`TrainerError::Pixels`] for one that cannot be followed, unless `flags` say it.
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

/// The recipe for a model's input where hosts make it, and what says it: `flags`, else the model, else it is ImageNet's.
///
/// # Errors
/// [`TrainerError`] for a model that takes no images, or a recipe that does not make its input.
pub fn input_pixels(model: &Model, flags: &PixelFlags) -> Result<(PixelSpec, PixelSource), TrainerError> {
    pixels(model, &model.network()?, flags, false)
}

/// A recipe as guests and models carry it.
///
/// # Errors
/// [`TrainerError::Recipe`].
pub(crate) fn recipe(spec: &PixelSpec) -> Result<String, TrainerError> {
    serde_json::to_string(spec).map_err(|source| TrainerError::Recipe {
        what: "cannot write it as JSON",
        source,
    })
}

/// Refuses a recipe whose crop is not the network's input.
pub(crate) fn check(spec: &PixelSpec, network: &Network) -> Result<(), TrainerError> {
    spec.check()?;
    let (crop, input) = (spec.sample_shape(), network.input.shape.dims());
    if crop.as_slice() == input {
        return Ok(());
    }
    let name = &network.input.name;
    let reason = format!("the crop is {crop:?}, the model's input '{name}' takes {input:?} per sample");
    Err(TrainerError::Pixels { reason })
}

/// What the model says about how its input was made.
pub(crate) fn input(model: &Model) -> Result<Option<Input>, TrainerError> {
    let Some(text) = model.metadata(PIXELS_KEY) else {
        return Ok(None);
    };
    let parsed = match serde_json::from_str(text) {
        Ok(noted) => Ok(Input::Guest(noted)),
        Err(_) => serde_json::from_str(text).map(Input::Pixels),
    };
    parsed.map(Some).map_err(|source| TrainerError::Recipe {
        what: "cannot read the model's metadata entry 'frostline.pixels'",
        source,
    })
}

/// What the model's outputs are, and their names, where it carries them.
pub(crate) fn outputs(model: &Model) -> Option<(Task, Vec<String>)> {
    let carried = |task| Some((task, serde_json::from_str(model.metadata(key(task))?).ok()?));
    [Task::Classes, Task::Labels, Task::Numbers]
        .into_iter()
        .find_map(carried)
}

fn key(task: Task) -> &'static str {
    match task {
        Task::Classes => CLASSES_KEY,
        Task::Labels => LABELS_KEY,
        Task::Numbers => TARGETS_KEY,
    }
}

/// How the job that made the model divided its data, where it did.
pub(crate) fn division(model: &Model) -> Option<Division> {
    serde_json::from_str(model.metadata(DIVISION_KEY)?).ok()
}

/// Writes all notes into the model, and what it may have carried of other outputs and data goes.
pub(crate) fn write(
    model: &mut Model,
    input: &Input,
    task: Task,
    names: &[String],
    division: Option<&Division>,
) {
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
    let input = match input {
        Input::Pixels(spec) => serde_json::to_string(spec),
        Input::Guest(guest) => serde_json::to_string(guest),
    };
    if let Ok(text) = input {
        model.set_metadata(PIXELS_KEY, &text);
    }
    if let Ok(text) = serde_json::to_string(names) {
        model.set_metadata(key(task), &text);
    }
    if let Some(Ok(text)) = division.map(serde_json::to_string) {
        model.set_metadata(DIVISION_KEY, &text);
    }
}
