//! Training state between two steps, with the job's identity.

use super::exact;
use super::file::{self, FileError, Tensors};
use crate::Quality;
use crate::pipeline::Part;
use crate::whole_file::Create;
use frostline_compute::{Standard, SuffixState};
use frostline_tensor::{Data, Tensor};
use frostline_wire::{Encoding, Split};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// A job between two steps.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) note: CheckpointNote,
    pub(crate) suffix: SuffixState,
    /// Samples that failed to decode.
    pub(crate) bad: Vec<(Part, usize)>,
}

/// Contents of a checkpoint other than tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CheckpointNote {
    pub(crate) job: JobNote,
    pub(crate) maker: Environment,
    #[serde(flatten)]
    pub(crate) at: TrainingState,
}

/// Position and results of a training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TrainingState {
    pub(crate) progress: Progress,
    /// The freeze cut in use.
    pub(crate) freeze: String,
    /// The split of the latest batches.
    pub(crate) split: Split,
    pub(crate) encoding: Encoding,
    /// Validation quality before the first step.
    #[serde(with = "exact::quality")]
    pub(crate) baseline: Quality,
    /// Result of the last completed epoch.
    pub(crate) last: Option<EpochResult>,
    /// The best epoch so far. The weights are stored in a separate file.
    pub(crate) best: Option<BestNote>,
}

/// Identity of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobNote {
    pub(crate) model: String,
    pub(crate) model_sha256: String,
    /// Hash of the settings.
    pub(crate) settings: String,
    /// Hash of the samples.
    pub(crate) samples: String,
}

/// Software and device that wrote a checkpoint. Other environments can produce different low-order bits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Environment {
    pub(crate) frostline: String,
    pub(crate) library: String,
    pub(crate) device: String,
    pub(crate) threads: usize,
}

/// Progress of a job.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// Number of the current epoch, counted from 1. After the last epoch, this is the number of epochs plus
    /// 1.
    pub(crate) epoch: u32,
    /// Completed training batches of this epoch.
    pub(crate) batch: usize,
    /// Completed steps of the whole job.
    pub(crate) step: u64,
    /// Sum of batch losses in this epoch, weighted by batch size.
    #[serde(with = "exact")]
    pub(crate) loss: f64,
    /// Number of samples in this sum.
    pub(crate) samples: usize,
    /// The first step since which every loss has been implausibly large; `None` if the last loss was
    /// plausible.
    pub(crate) beyond: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct EpochResult {
    /// Mean training loss over the samples of the epoch.
    #[serde(with = "exact")]
    pub(crate) loss: f64,
    /// Validation quality.
    #[serde(with = "exact::quality")]
    pub(crate) quality: Quality,
}

/// Number and quality of the best epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct BestNote {
    pub(crate) epoch: u32,
    #[serde(with = "exact::quality")]
    pub(crate) quality: Quality,
}

impl Progress {
    /// Progress before the first step.
    pub(crate) fn start() -> Self {
        Self::at(1, 0)
    }

    /// Progress at the beginning of `epoch`.
    pub(crate) fn at(epoch: u32, step: u64) -> Self {
        Self {
            epoch,
            batch: 0,
            step,
            loss: 0.0,
            samples: 0,
            beyond: None,
        }
    }

    /// Number of epochs with a completed training batch.
    pub(crate) fn epoch_begun(&self) -> u32 {
        self.epoch.saturating_sub(u32::from(self.batch == 0))
    }

    /// Adds a batch of `samples` samples whose mean loss is `loss`.
    pub(crate) fn add(&mut self, loss: f32, samples: usize) {
        self.batch += 1;
        self.loss += f64::from(loss) * samples as f64;
        self.samples += samples;
    }
}

const SLOT: &str = "slot/";
const STANDARD: &str = "standard";
const BAD: &str = "bad";

impl Snapshot {
    /// Writes the snapshot and returns the number of bytes written.
    pub(super) fn write(&self, path: &Path, create: Create) -> io::Result<u64> {
        file::write(path, create, &self.note, &self.tensors()?)
    }

    fn tensors(&self) -> io::Result<Tensors> {
        let slots = self.suffix.slots.iter();
        let mut tensors: Tensors = slots
            .map(|(input, tensor)| (format!("{SLOT}{input}"), tensor.clone()))
            .collect();
        if let Some(standard) = &self.suffix.standard {
            let features = standard.features();
            let values = features.iter().flat_map(|(mean, scale)| [*mean, *scale]);
            let tensor = Tensor::new([features.len(), 2], Data::F64(values.collect()));
            tensors.push((STANDARD.to_owned(), tensor.map_err(io::Error::other)?));
        }
        let bad = self.bad.iter();
        let bad = bad.flat_map(|(part, index)| [i64::from(*part == Part::Validation), *index as i64]);
        let tensor = Tensor::i64([self.bad.len(), 2], bad.collect());
        tensors.push((BAD.to_owned(), tensor.map_err(io::Error::other)?));
        Ok(tensors)
    }

    /// Reads and verifies a snapshot.
    pub(super) fn read(path: &Path) -> Result<Self, FileError> {
        let (note, tensors): (CheckpointNote, Tensors) = file::read(path)?;
        let mut slots = Vec::new();
        let mut standard = None;
        let mut bad = Vec::new();
        for (name, tensor) in tensors {
            match (name.as_str(), tensor.data()) {
                (STANDARD, Data::F64(values)) => {
                    let pairs = values.as_chunks::<2>().0.iter();
                    standard = Some(Standard::new(
                        pairs.map(|[mean, scale]| (*mean, *scale)).collect(),
                    ));
                }
                (BAD, Data::I64(values)) => {
                    let pairs = values.as_chunks::<2>().0.iter();
                    bad.extend(pairs.map(|[part, index]| {
                        let part = if *part == 0 { Part::Train } else { Part::Validation };
                        (part, usize::try_from(*index).unwrap_or(usize::MAX))
                    }));
                }
                _ => match name.strip_prefix(SLOT) {
                    Some(input) => slots.push((input.to_owned(), tensor)),
                    None => return Err(FileError::Content(format!("unknown tensor '{name}'"))),
                },
            }
        }
        Ok(Self {
            suffix: SuffixState { slots, standard },
            note,
            bad,
        })
    }
}

/// Metadata of the best epoch's weights file. Weights are stored in the format of the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct BestFile {
    pub(super) job: JobNote,
    pub(super) best: BestNote,
}
