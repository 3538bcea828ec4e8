use crate::{Quality, SettingError};
use frostline_client::{ClientError, DatasetError};
use frostline_compute::ComputeError;
use frostline_graph::{Cut, GraphError, Network, list_first};
use frostline_images::ImageError;
use frostline_plan::PlanError;
use frostline_profile::ProfileError;
use frostline_quantization::QuantizationError;
use frostline_rows::RowsError;
use frostline_tensor::{OpError, ShapeError, one_line};
use frostline_training::TrainingError;
use frostline_wire::{Encoding, Split, TermsError};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Error that prevents a job from starting or from producing a model. The message is a single line for the
/// user who started the job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainerError {
    /// The host refused a request, failed or did not respond.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The data do not have the required layout.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// The table with labels cannot be read.
    #[error("cannot read the labels table '{name}': {source}")]
    Labels {
        /// Name of the file or object.
        name: String,
        /// Reason from the system.
        source: std::io::Error,
    },
    /// The job requires a table with labels, but the data do not contain it.
    #[error(
        "'{root}' has no labels.csv, which multi-label and regression training need; add this file to the data, or use a table outside the data"
    )]
    Unlabeled {
        /// The data root.
        root: String,
    },
    /// Reading the model, dividing it or replacing the head failed.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The computation on this machine failed.
    #[error(transparent)]
    Compute(#[from] ComputeError),
    /// The setting `unfreeze` is invalid.
    #[error("cannot unfreeze the layers after '{cut}' in epoch {epoch}: {why}")]
    Unfreezing {
        /// First epoch with this freeze cut.
        epoch: u32,
        /// The cut.
        cut: String,
        /// The violated requirement.
        why: String,
    },
    /// An operator after the freeze cut is not differentiable.
    #[error("cannot train the layers after `{freeze}`: {why}; {}", advice(.earliest.as_deref()))]
    Untrainable {
        /// The freeze cut.
        freeze: String,
        /// The operator with the node and the module.
        why: String,
        /// The earliest freeze cut that works, if any.
        earliest: Option<String>,
    },
    /// The terms for the hosts are invalid.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// The split is after the freeze cut.
    #[error(
        "the split '{split}' is after the freeze cut '{freeze}'; choose a split at or before it: {allowed}"
    )]
    SplitAfterFreeze {
        /// The requested split.
        split: String,
        /// The freeze cut.
        freeze: String,
        /// List of allowed splits.
        allowed: String,
    },
    /// The guest does not serve this split.
    #[error("the guest '{guest}' rules out the split '{split}': {reason}")]
    SplitRuledOut {
        /// The requested split.
        split: Split,
        /// Name and version of the guest.
        guest: String,
        /// Reason, derived from the guest's description.
        reason: String,
    },
    /// The encoding does not exist for the split.
    #[error("encoding {encoding} is unavailable at the split '{split}': {reason}")]
    Encoding {
        /// The requested encoding.
        encoding: Encoding,
        /// The split.
        split: Split,
        /// Reason and alternatives.
        reason: &'static str,
    },
    /// The frozen layers exceed the size limit of an ONNX file.
    #[error(
        "the frozen layers up to '{end}' have {bytes} bytes, more than one ONNX file can hold ({limit}); freeze at an earlier cut, or \
         train with the split none, which sends no layers"
    )]
    LayersTooLarge {
        /// The cut at the end of the layers.
        end: String,
        /// Size of the layers in bytes.
        bytes: usize,
        /// Maximum size of an ONNX file in bytes.
        limit: usize,
    },
    /// The preprocessing recipe is invalid or does not fit the model.
    #[error("invalid preprocessing: {reason}")]
    Pixels {
        /// Reason and suggested fix.
        reason: String,
    },
    /// The guest does not load augmented pixels.
    #[error(
        "guest {guest} cannot augment: it makes its own pixels, or was built for frostline:pushdown before 0.1.1; call \
         images.load-augmented in the guest, or turn augmentation off"
    )]
    CannotAugment {
        /// Name and version of the guest.
        guest: String,
    },
    /// The model was trained on input that only a guest can make.
    #[error(
        "the model was trained on input that the guest '{guest}' makes (SHA-256 {sha256}), so it requires that guest"
    )]
    GuestNeeded {
        /// Name of the guest.
        guest: String,
        /// SHA-256 of the guest.
        sha256: String,
    },
    /// The number of class names, from the model or else from the data, differs from the number of outputs.
    #[error("{outputs} outputs but {classes} classes in the data; evaluate a model trained on these classes")]
    Classes {
        /// Number of classes in the model, or of class folders if the model does not contain class names.
        classes: usize,
        /// Number of outputs.
        outputs: usize,
    },
    /// The data have a class that the tuned model does not name.
    #[error("{source}; {known}")]
    UnknownClass {
        /// Error with the name of the class.
        source: DatasetError,
        /// Similar classes in the model, or all classes if there are only a few.
        known: String,
    },
    /// A setting of the job is invalid.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The recipe does not give a valid training step.
    #[error("invalid recipe: {source}")]
    InvalidRecipe {
        /// Error with the name of the setting.
        source: TrainingError,
    },
    /// The learning rates by group do not match the trained weights.
    #[error("invalid learning rates by group: {reason}")]
    Groups {
        /// The invalid group or weight and a suggested fix.
        reason: String,
    },
    /// Planning is impossible because no measurements are available.
    #[error("no plan available: the split would be {reason}")]
    Unplannable {
        /// Split of the job and the reason.
        reason: String,
    },
    /// No split fits the policy.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The frozen layers are too imprecise in int8.
    #[error(
        "int8 is too imprecise for the frozen layers: the cosine similarity to f32 is {cosine:.4}, at least {least} is required; the error is largest \
         up to '{worst}'. Use f32, freeze fewer layers, or accept the lower precision"
    )]
    Imprecise {
        /// Mean cosine similarity to f32.
        cosine: f64,
        /// Minimum cosine similarity.
        least: f64,
        /// The cut or module with the largest increase of the error.
        worst: String,
    },
    /// ONNX Runtime computes other activations with optimizations than without.
    #[error(
        "the activations of {keys} at '{cut}' differ from ONNX Runtime's without optimizations: {}; {}",
        off(*difference),
        match .on_this_machine {
            true => "ONNX Runtime's optimizations change the result of these layers; use an earlier cut, or another version of ONNX Runtime \
                     on all machines",
            false => "optimizations do not change the result on this machine's CPU, so the computing host or GPU has another fault; use another \
                      version of ONNX Runtime or another device there",
        }
    )]
    OptimizedWrongly {
        /// Keys of the compared images.
        keys: String,
        /// The cut.
        cut: String,
        /// Largest difference relative to the largest activation. Infinite if the activations of only one side
        /// are finite.
        difference: f64,
        /// True if optimizations change the result on this machine's CPU, too.
        on_this_machine: bool,
    },
    /// Quantizing the frozen layers failed.
    #[error("cannot quantize the frozen layers: {0}")]
    Quantization(#[from] QuantizationError),
    /// Two batches do not fit the memory given to the job.
    #[error(
        "{batches} batches of {batch} samples at the split '{split}' need {needed} bytes each, more than the limit of \
         {limit} bytes; reduce the batch or the prefetch, or raise memory_bytes"
    )]
    Memory {
        /// Samples per batch.
        batch: usize,
        /// Bytes of the largest batch.
        needed: u64,
        /// Number of batches in memory: the current batch and the prefetched batches.
        batches: usize,
        /// Memory limit of the job in bytes.
        limit: u64,
        /// The split.
        split: Split,
    },
    /// A training step does not fit this machine's memory.
    #[error(
        "cannot train with batches of {batch} samples: a step needs about {needed} bytes of memory, but only {available} are available; {}",
        match .fits {
            0 => "freeze more layers, or train on a machine with more memory".to_owned(),
            fits => format!("at most {fits} samples fit"),
        }
    )]
    StepMemory {
        /// Samples per batch.
        batch: usize,
        /// Approximate size of a step in bytes.
        needed: u64,
        /// Memory in bytes that is available to this process.
        available: u64,
        /// Largest batch size that fits, or 0.
        fits: usize,
        /// The largest batch size up to `fits` that divides an update evenly, if any.
        smaller: Option<SmallerBatch>,
    },
    /// A sample is unusable, and the job is configured to fail in this case.
    #[error("bad sample '{key}': {source}")]
    BadSample {
        /// The object's key.
        key: String,
        /// Reason for the failure.
        source: OpError,
    },
    /// All samples for training or for validation are unusable.
    #[error("all {count} {part} samples are bad; the last was '{key}': {source}")]
    AllBad {
        /// `training` or `validation`.
        part: &'static str,
        /// Number of samples.
        count: usize,
        /// Key of the last unusable sample.
        key: String,
        /// Error of this sample.
        source: OpError,
    },
    /// Training diverged.
    #[error("training diverged at step {step}: {sign}; try a learning rate below {learning_rate}; {}", kept.as_ref().map_or("no model was written", |kept| kept.text.as_str()))]
    Diverged {
        /// Number of the diverged step.
        step: u64,
        /// Description of the symptom.
        sign: String,
        /// Learning rate at this step.
        learning_rate: f32,
        /// The earlier model that was written, if any.
        kept: Option<WrittenModel>,
    },
    /// The network of the job cannot be used.
    #[error("cannot use the model {file}: {source}", file = file.display())]
    Model {
        /// Path of the file.
        file: PathBuf,
        /// Error from the graph library.
        source: GraphError,
    },
    /// Using a file failed.
    #[error("cannot use the {what} {file}: {why}", file = file.display())]
    File {
        /// Description of the file.
        what: &'static str,
        /// Path of the file.
        file: PathBuf,
        /// Reason for the failure.
        why: String,
    },
    /// A result could not be written. The incomplete file was removed.
    #[error("cannot write the {what} to {path}: {source}; nothing was written there", path = path.display())]
    Output {
        /// The tuned model or the predictions.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error from the system.
        source: std::io::Error,
    },
    /// The number of output names in the model's metadata does not match the number of outputs.
    #[error(
        "the model has {outputs} outputs but names {names} in its metadata (frostline.classes, frostline.labels or frostline.targets); \
         use a model as `frostline train` wrote it"
    )]
    Names {
        /// Number of names.
        names: usize,
        /// Number of outputs.
        outputs: usize,
    },
    /// Preprocessing failed for a reason that is unrelated to the image.
    #[error("preprocessing failed on the trainer: {0}")]
    Preprocess(#[from] ImageError),
    /// The network could not be measured on this machine.
    #[error("profiling failed on the trainer: {0}")]
    Profile(#[from] ProfileError),
    /// Using the folder of the run failed.
    #[error("cannot use the run {run}: {why}", run = run.display())]
    Run {
        /// Path of the folder.
        run: PathBuf,
        /// Reason and suggested fix.
        why: String,
    },
    /// Resuming the run failed.
    #[error("cannot resume {run}: {why}", run = run.display())]
    Resume {
        /// Path of the folder.
        run: PathBuf,
        /// Reason for the failure.
        why: String,
    },
    /// The job was canceled after the first step and has written a model.
    #[error("stopped in epoch {epoch} after step {step}; {kept}")]
    Stopped {
        /// Current epoch, counted from 1.
        epoch: u32,
        /// Number of steps since the start of the job.
        step: u64,
        /// Description of the written model.
        kept: WrittenModel,
    },
    /// The job failed after the first step and has written a model.
    #[error("{source}; {kept}")]
    Failed {
        /// The error that ended the job.
        source: Box<TrainerError>,
        /// Description of the written model.
        kept: WrittenModel,
    },
    /// Samples have changed since the last checkpoint. The run can be resumed with
    /// [`OnBadSample::Skip`](crate::OnBadSample::Skip), which leaves these samples out.
    #[error("cannot resume {run}: the data set has changed: {difference}", run = run.display())]
    DataChanged {
        /// Path of the folder.
        run: PathBuf,
        /// Number of samples that were added, removed and changed.
        difference: String,
    },
    /// The job was canceled before the first step, so no model was written.
    #[error("stopped before the first step; no model was written")]
    Cancelled,
    /// Tensor shapes do not match.
    #[error("tensor shapes do not match on the trainer: {0}")]
    Shape(#[from] ShapeError),
    /// A component of the trainer stopped unexpectedly, which is a bug.
    #[error("the trainer's {part} stopped unexpectedly; this is a bug in Frostline, please report it")]
    Ended {
        /// Name of the component.
        part: &'static str,
    },
}

/// Settings with the same number of samples per update in smaller batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SmallerBatch {
    /// Samples per batch.
    pub batch: usize,
    /// Number of batches per update.
    pub accumulation: usize,
}

/// Model written by a job that ended early.
#[derive(Debug, Clone, PartialEq)]
pub struct WrittenModel {
    /// The last epoch that is included in the weights, or 0 if no epoch was completed.
    pub epoch: u32,
    /// Quality on the validation samples after this epoch.
    pub validation: Quality,
    /// Description of the epoch and the path for people.
    pub text: String,
}

impl fmt::Display for WrittenModel {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.text)
    }
}

impl From<RowsError> for TrainerError {
    fn from(error: RowsError) -> Self {
        match error {
            RowsError::Client(error) => error.into(),
            RowsError::Shape(error) => error.into(),
            RowsError::Ended { part } => Self::Ended { part },
            RowsError::NotCached => Self::Ended {
                part: "feature cache",
            },
        }
    }
}

impl TrainerError {
    /// Returns the error that ended the job, without the written model.
    pub fn cause(&self) -> &Self {
        match self {
            Self::Failed { source, .. } => source.cause(),
            error => error,
        }
    }

    /// Creates a [`TrainerError::File`] with the message of `why` in a single line.
    pub(crate) fn file(what: &'static str, file: &Path, why: &(dyn std::error::Error + 'static)) -> Self {
        Self::File {
            what,
            file: file.to_owned(),
            why: one_line(why),
        }
    }

    /// Converts the system's errors for the result `what` at `path` to [`TrainerError::Output`].
    pub(crate) fn unwritten(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Output { what, path, source }
    }

    /// Creates a [`TrainerError::Resume`] for the folder `run`.
    pub(crate) fn resume(run: &Path, why: impl Into<String>) -> Self {
        Self::Resume {
            run: run.to_owned(),
            why: why.into(),
        }
    }

    /// Creates an error for a split after the freeze cut of `network`. `frozen` contains the allowed cuts.
    pub(crate) fn after_freeze(network: &Network, split: &str, freeze: &str, frozen: &[Cut]) -> Self {
        let names = frozen.iter().map(|cut| network.title(cut));
        let names: Vec<&str> = ["none", "input"].into_iter().chain(names).collect();
        Self::SplitAfterFreeze {
            split: split.to_owned(),
            freeze: freeze.to_owned(),
            allowed: list_first(&names),
        }
    }
}

/// Describes a difference relative to the largest activation.
fn off(difference: f64) -> String {
    match difference.is_finite() {
        true => format!("off by {:.2} % of the largest", difference * 100.0),
        false => "some are infinite or NaN".to_owned(),
    }
}

/// Suggests a freeze cut that works.
fn advice(earliest: Option<&str>) -> String {
    earliest.map_or_else(
        || "no freeze cut of this network works".to_owned(),
        |cut| format!("`{cut}` is the earliest freeze cut that works"),
    )
}
