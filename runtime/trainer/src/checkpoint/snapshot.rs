//! All that one step of a job hands to the next, and what job it is of.

use super::exact;
use super::file::{self, FileError, Tensors};
use crate::Quality;
use crate::compute::SuffixState;
use crate::pipeline::Part;
use crate::standard::Standard;
use crate::whole_file::Create;
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
    /// Samples that cannot be used.
    pub(crate) bad: Vec<(Part, usize)>,
}

/// What of it is no tensor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CheckpointNote {
    pub(crate) job: JobNote,
    pub(crate) maker: Environment,
    /// Where it stood.
    #[serde(flatten)]
    pub(crate) at: TrainingState,
}

/// Where a job stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TrainingState {
    pub(crate) progress: Progress,
    /// The freeze cut that the layers are of which are trained.
    pub(crate) freeze: String,
    /// Where batches were divided.
    pub(crate) split: Split,
    pub(crate) encoding: Encoding,
    /// Before the first step.
    #[serde(with = "exact::quality")]
    pub(crate) baseline: Quality,
    /// The last epoch that ended.
    pub(crate) last: Option<EpochResult>,
    /// The best epoch so far; its weights have a file of their own.
    pub(crate) best: Option<BestNote>,
}

/// Which job it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobNote {
    pub(crate) model: String,
    pub(crate) model_sha256: String,
    /// Hash of its settings.
    pub(crate) settings: String,
    /// Hash of its samples.
    pub(crate) samples: String,
}

/// What wrote it: another one may compute otherwise in the last bits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Environment {
    pub(crate) frostline: String,
    pub(crate) library: String,
    pub(crate) device: String,
    pub(crate) threads: usize,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// The epoch under way, from 1; past the last one when all have ended.
    pub(crate) epoch: u32,
    /// Its training batches that are behind us.
    pub(crate) batch: usize,
    /// Steps of the whole job.
    pub(crate) step: u64,
    /// The epoch's losses so far, each times its samples.
    #[serde(with = "exact")]
    pub(crate) loss: f64,
    /// Those samples.
    pub(crate) samples: usize,
    /// The step from which on the loss has been out of this world.
    pub(crate) beyond: Option<u64>,
}

/// How an epoch ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct EpochResult {
    /// Mean over its samples.
    #[serde(with = "exact")]
    pub(crate) loss: f64,
    /// On the validation samples.
    #[serde(with = "exact::quality")]
    pub(crate) quality: Quality,
}

/// Which epoch was the best.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct BestNote {
    pub(crate) epoch: u32,
    #[serde(with = "exact::quality")]
    pub(crate) quality: Quality,
}

impl Progress {
    /// Before the first step.
    pub(crate) fn start() -> Self {
        Self::at(1, 0)
    }

    /// At the beginning of `epoch`, after so many steps.
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

    /// The last epoch that has begun.
    pub(crate) fn epoch_begun(&self) -> u32 {
        self.epoch.saturating_sub(u32::from(self.batch == 0))
    }

    /// Counts a batch of this mean loss and so many samples.
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
    /// Writes it; the bytes it took.
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

    /// Reads what was written, and nothing that is not whole.
    pub(super) fn read(path: &Path) -> Result<Self, FileError> {
        let (note, tensors): (CheckpointNote, Tensors) = file::read(path)?;
        let (mut slots, mut standard, mut bad) = (Vec::new(), None, Vec::new());
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

/// The weights after the best epoch, as they are written into a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct BestFile {
    pub(super) job: JobNote,
    pub(super) best: BestNote,
}
