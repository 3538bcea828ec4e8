use crate::plan::list_first;
use crate::{Quality, SettingError};
use frostline_client::{ClientError, DatasetError};
use frostline_engine::EngineError;
use frostline_graph::{Cut, GraphError, Network};
use frostline_profile::ProfileError;
use frostline_quantization::QuantizationError;
use frostline_tensor::{OpError, PixelSpecError, ShapeError, one_line};
use frostline_training::TrainingError;
use frostline_wire::{Encoding, Split, TermsError};
use std::fmt;
use std::path::{Path, PathBuf};

/// Why a job could not start, or ended without a model. Every text is one line for the person who started the job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainerError {
    /// The host refused, failed or did not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The data are not laid out as a task.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// The labels table cannot be read.
    #[error("cannot read the labels table '{name}': {source}")]
    Labels {
        /// The file or the object.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// Nothing gives samples their numbers or several labels.
    #[error(
        "'{root}' has no labels.csv, which multi-label and regression training need; put one beside the data, or pass --labels FILE"
    )]
    Unlabeled {
        /// The data root.
        root: String,
    },
    /// The model cannot be read, divided or given a new head.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The layers after the freeze cut cannot be trained.
    #[error("cannot train the layers after the freeze cut '{freeze}': {source}")]
    Training {
        /// The freeze cut.
        freeze: String,
        /// What stands in the way.
        source: TrainingError,
    },
    /// Features cannot be standardized.
    #[error("--standardize requires a linear classifier: {why}")]
    Standardize {
        /// What there is instead, and what to do.
        why: String,
    },
    /// A later freeze cut that cannot be.
    #[error("--unfreeze {epoch}={cut}: {why}")]
    Unfreezing {
        /// Its first epoch.
        epoch: u32,
        /// The cut.
        cut: String,
        /// What it has to be.
        why: String,
    },
    /// Something after the freeze cut has no gradient.
    #[error("cannot train the layers after `{freeze}`: {why}; {}", advice(.earliest.as_deref()))]
    Untrainable {
        /// The freeze cut.
        freeze: String,
        /// The operator, the node and the module it lies in.
        why: String,
        /// The earliest freeze cut that works.
        earliest: Option<String>,
    },
    /// No host serves on such terms.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// The trainer's own engine failed.
    #[error("{doing}: {source}")]
    Engine {
        /// What it was asked to do.
        doing: &'static str,
        /// Its answer.
        source: EngineError,
    },
    /// The split lies behind the freeze cut.
    #[error(
        "the split '{split}' lies after the freeze cut '{freeze}'; it must lie at or before it: {allowed}"
    )]
    SplitAfterFreeze {
        /// The requested split.
        split: String,
        /// The freeze cut.
        freeze: String,
        /// Splits that are allowed.
        allowed: String,
    },
    /// The guest does not serve this split.
    #[error("the guest '{guest}' rules out the split '{split}': {reason}")]
    SplitRuledOut {
        /// The requested split.
        split: Split,
        /// The guest's own name and version.
        guest: String,
        /// What its description says.
        reason: String,
    },
    /// The encoding does not exist for the split.
    #[error("encoding {encoding} is unavailable at the split '{split}': {reason}")]
    Encoding {
        /// The requested encoding.
        encoding: Encoding,
        /// The split.
        split: Split,
        /// Why, and what to ask for.
        reason: &'static str,
    },
    /// The frozen layers are more than a host takes.
    #[error(
        "the frozen layers up to '{end}' have {bytes} bytes, more than one ONNX file can hold ({limit}); freeze at an earlier cut, or \
         train with --split none, which sends no layers"
    )]
    LayersTooLarge {
        /// The cut they end at.
        end: String,
        /// Their size.
        bytes: usize,
        /// What one file holds.
        limit: usize,
    },
    /// The preprocessing recipe does not fit the model.
    #[error("invalid preprocessing: {reason}")]
    Pixels {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The guest does not load augmented pixels.
    #[error(
        "guest {guest} cannot augment: it makes its own pixels, or was built for frostline:pushdown before 0.1.1; call \
         images.load-augmented in the guest, or turn augmentation off"
    )]
    CannotAugment {
        /// Its name and version.
        guest: String,
    },
    /// The preprocessing recipe is invalid.
    #[error("invalid preprocessing: {0}")]
    PixelSpec(#[from] PixelSpecError),
    /// The preprocessing recipe cannot be read or written.
    #[error("invalid preprocessing: {what}: {source}")]
    Recipe {
        /// What cannot.
        what: &'static str,
        /// The reason.
        source: serde_json::Error,
    },
    /// The model was trained on input that only a guest can make.
    #[error(
        "the model was trained on input that the guest '{guest}' makes (SHA-256 {sha256}); pass that guest with --guest FILE"
    )]
    GuestNeeded {
        /// Its name.
        guest: String,
        /// Its content.
        sha256: String,
    },
    /// Nothing says which class each output of the model is.
    #[error(
        "the model has {outputs} outputs and the data {classes} classes; evaluate a model that `frostline train` wrote, on data with its classes"
    )]
    Classes {
        /// Classes the model names, or class folders where it names none.
        classes: usize,
        /// Its outputs.
        outputs: usize,
    },
    /// The data have a class that the tuned model does not name.
    #[error("{source}; {known}")]
    UnknownClass {
        /// Which one.
        source: DatasetError,
        /// Similar classes of the model, and all it knows when they are few.
        known: String,
    },
    /// A value of the job cannot be used.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The recipe does not give a valid training step.
    #[error("invalid recipe: {source}")]
    Unfollowable {
        /// Which setting.
        source: TrainingError,
    },
    /// Learning rates by groups that do not fit the weights that are trained.
    #[error("invalid learning rates by group: {reason}")]
    Groups {
        /// Which group or weight, and what to do.
        reason: String,
    },
    /// Nothing can be measured, so no plan is possible.
    #[error("no plan available: the split would be {reason}")]
    Unplannable {
        /// What a job would do, and why.
        reason: String,
    },
    /// No split fits the policy.
    #[error("no split fits the policy '{policy}': {why}")]
    Policy {
        /// The policy.
        policy: String,
        /// What there is, and what was probably meant.
        why: String,
    },
    /// The frozen layers lose too much precision in int8.
    #[error(
        "int8 is too imprecise for the frozen layers: the cosine similarity to f32 is {cosine:.4}, at least {least} is required; the error is largest \
         up to '{worst}'. Use --prefix-precision f32, freeze fewer layers, or accept it with --allow-imprecise"
    )]
    Imprecise {
        /// The mean cosine similarity to f32.
        cosine: f64,
        /// What is required.
        least: f64,
        /// The cut, by its module, before which the error grew most.
        worst: String,
    },
    /// The frozen layers cannot be quantized.
    #[error("cannot quantize the frozen layers: {0}")]
    Quantization(#[from] QuantizationError),
    /// Two batches do not fit the memory given to the job.
    #[error(
        "{batches} batches of {batch} samples at the split '{split}' need {needed} bytes each, more than the {limit} bytes of \
         --memory-bytes; reduce --batch or the prefetch, or raise --memory-bytes"
    )]
    Memory {
        /// Samples per batch.
        batch: usize,
        /// Bytes of the largest batch.
        needed: u64,
        /// Batches in memory at once: the one that trains and those ahead.
        batches: usize,
        /// Bytes the job may use.
        limit: u64,
        /// The split.
        split: Split,
    },
    /// A training step does not fit this machine's memory.
    #[error(
        "cannot train in batches of {batch}: a step needs about {needed} bytes of memory, and {available} are available; {advice}"
    )]
    StepMemory {
        /// Samples per batch.
        batch: usize,
        /// Bytes of a step, about.
        needed: u64,
        /// Bytes that this process may still take.
        available: u64,
        /// The batch that fits.
        advice: String,
    },
    /// A sample cannot be used, and the job is to fail on such.
    #[error("bad sample '{key}': {source}; pass --on-bad-sample skip to skip bad samples")]
    BadSample {
        /// The object's key.
        key: String,
        /// What is wrong with it.
        source: OpError,
    },
    /// No validation or no training sample was usable.
    #[error("all {count} {part} samples are bad; the last was '{key}': {source}")]
    AllBad {
        /// `training` or `validation`.
        part: &'static str,
        /// How many there were.
        count: usize,
        /// One of them.
        key: String,
        /// What is wrong with it.
        source: OpError,
    },
    /// Training diverged.
    #[error("training diverged at step {step}: {sign}; try a learning rate below {learning_rate}; {}", kept.as_ref().map_or("no model was written", WrittenModel::as_str))]
    Diverged {
        /// The first diverged step.
        step: u64,
        /// The symptom.
        sign: String,
        /// The rate in use.
        learning_rate: f32,
        /// Which earlier model was written in the end, if there was one.
        kept: Option<WrittenModel>,
    },
    /// A file that the job names cannot be used.
    #[error("cannot use the {what} {file}: {why}", file = file.display())]
    File {
        /// What it is.
        what: &'static str,
        /// Which one.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The tuned model could not be written; nothing is left behind.
    #[error("cannot write the tuned model to {path}: {source}; nothing was written there", path = path.display())]
    Export {
        /// Where it should go.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The predictions could not be written; nothing is left behind.
    #[error("cannot write the predictions to {path}: {source}; nothing was written there", path = path.display())]
    Predictions {
        /// Where they should go.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The model names its outputs, but not as many as it has.
    #[error(
        "the model has {outputs} outputs but names {names} in its metadata (frostline.classes, frostline.labels or frostline.targets); \
         use a model as `frostline train` wrote it"
    )]
    Names {
        /// Names it carries.
        names: usize,
        /// Its outputs.
        outputs: usize,
    },
    /// An image could not be preprocessed for a reason that is not the image.
    #[error("preprocessing failed on the trainer: {source}")]
    Preprocess {
        /// The operation's own text.
        source: OpError,
    },
    /// The network could not be measured on this machine.
    #[error("profiling failed on the trainer: {0}")]
    Profile(#[from] ProfileError),
    /// The system gives no thread.
    #[error("cannot start a thread: {source}")]
    Thread {
        /// What the system says.
        source: std::io::Error,
    },
    /// A run's folder cannot be used.
    #[error("cannot use the run {run}: {why}", run = run.display())]
    Run {
        /// The folder.
        run: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// A run cannot be resumed.
    #[error("cannot resume {run}: {why}", run = run.display())]
    Resume {
        /// Its folder.
        run: PathBuf,
        /// Why.
        why: String,
    },
    /// The job was cancelled after its first step, and a model was written.
    #[error("stopped in epoch {epoch} after step {step}; {kept}")]
    Stopped {
        /// The epoch under way, from 1.
        epoch: u32,
        /// Steps of the whole job.
        step: u64,
        /// What was written.
        kept: WrittenModel,
    },
    /// The job was cancelled before its first step; no model was written.
    #[error("stopped before the first step; no model was written")]
    Cancelled,
    /// Tensors did not fit each other.
    #[error("tensor shapes do not match on the trainer: {0}")]
    Shape(#[from] ShapeError),
    /// A part of the trainer stopped unexpectedly.
    #[error("the trainer's {part} stopped unexpectedly; this is a bug in Frostline, please report it")]
    Ended {
        /// Which part.
        part: &'static str,
    },
}

/// A model that was written though the job ended early.
#[derive(Debug, Clone, PartialEq)]
pub struct WrittenModel {
    /// The last epoch that is in its weights, 0 before the first ended.
    pub epoch: u32,
    /// On the validation samples after that epoch.
    pub validation: Quality,
    /// For people: which one, its path, how to resume.
    pub(crate) text: String,
}

impl WrittenModel {
    /// In words.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for WrittenModel {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.text)
    }
}

impl TrainerError {
    /// A file that cannot be used, and why.
    pub(crate) fn file(what: &'static str, file: &Path, why: &(dyn std::error::Error + 'static)) -> Self {
        Self::File {
            what,
            file: file.to_owned(),
            why: one_line(why),
        }
    }

    /// The split lies behind the freeze cut of `network`, the last of the `frozen`.
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

/// What to do where a freeze cut cannot be trained from.
fn advice(earliest: Option<&str>) -> String {
    earliest.map_or_else(
        || "no freeze cut of this network works".to_owned(),
        |cut| format!("`--freeze {cut}` is the earliest that works"),
    )
}
