//! Random division of data without parts. It is recorded in the tuned model, so that an evaluation can
//! exclude training samples.

use frostline_client::{Dataset, DatasetError, LabelTable, Listing, SampleFiles, Samples, is_same_name};
use frostline_job::Conflict;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashSet;

/// Reproducible random division of a data set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Division {
    /// Share of each class used for validation.
    share: f64,
    seed: u64,
    /// Hash of the keys of each part.
    samples: String,
}

/// Relation of a data set to the division recorded in a model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Divided {
    /// The model was trained with the same samples. Both sets contain sample keys.
    Same {
        trained: HashSet<String>,
        held_out: HashSet<String>,
    },
    /// The samples differ, but may overlap with the training data.
    Different,
    /// The data already has separate parts.
    HasParts,
}

/// Listed data of a root, with optional labels.
#[derive(Clone)]
pub(crate) struct ListedSamples<'a> {
    pub(crate) root: &'a str,
    pub(crate) listing: Listing,
    pub(crate) table: Option<LabelTable>,
    pub(crate) files: SampleFiles,
}

impl ListedSamples<'_> {
    /// Divides the samples into a training and a validation part.
    pub(crate) fn divide(self, share: Option<f64>, seed: u64) -> Result<Dataset, DatasetError> {
        let division = frostline_client::Division {
            validation_share: share,
            seed,
            files: self.files,
        };
        Dataset::new(self.root, self.listing, self.table, division)
    }
}

impl Division {
    /// Records how `dataset` was divided. Returns `None` without a validation share.
    pub(crate) fn from_dataset(dataset: &Dataset, share: Option<f64>, seed: u64) -> Option<Self> {
        Some(Self {
            share: share?,
            seed,
            samples: digest(&[&dataset.train, &dataset.validation].map(|part| keys(part, &[], None))),
        })
    }

    /// Clears the recorded samples. Used for a model that may have been trained before on samples of any
    /// part, so no data is known to be held out.
    pub(crate) fn with_unknown_past(self) -> Self {
        Self {
            samples: String::new(),
            ..self
        }
    }

    /// Returns the conflict of a job that divides the data in another way.
    pub(crate) fn conflict(&self) -> Conflict {
        Conflict::OtherDivision {
            share: self.share.to_string(),
            seed: self.seed,
        }
    }

    /// Reproduces the division on `data`.
    pub(crate) fn reproduce(&self, data: ListedSamples<'_>) -> Divided {
        self.reproduce_classes(data, None)
    }

    /// Reproduces the division on `data`, for the classes in `only` or for all classes. Setting `only`
    /// ignores classes added since.
    pub(crate) fn reproduce_classes(&self, data: ListedSamples<'_>, only: Option<&[String]>) -> Divided {
        let dataset = match data.divide(Some(self.share), self.seed) {
            Ok(dataset) => dataset,
            Err(DatasetError::DividedTwice { .. } | DatasetError::NoTrain { .. }) => {
                return Divided::HasParts;
            }
            // The model's training divided its samples without this error.
            Err(_) => return Divided::Different,
        };
        let parts = [&dataset.train, &dataset.validation].map(|part| keys(part, &dataset.classes, only));
        if digest(&parts) != self.samples {
            return Divided::Different;
        }
        let [trained, held_out] = parts.map(|keys| keys.into_iter().collect());
        Divided::Same { trained, held_out }
    }
}

/// Returns the keys of samples, limited to the classes in `only` if set.
fn keys(samples: &Samples, classes: &[String], only: Option<&[String]>) -> Vec<String> {
    let is_meant = |label: u32| {
        let class = classes.get(label as usize);
        only.is_none_or(|only| class.is_some_and(|class| only.iter().any(|known| is_same_name(known, class))))
    };
    let meant = samples.iter().filter(|(_, label)| is_meant(*label));
    meant.map(|(sample, _)| sample.sample.key).collect()
}

fn digest(parts: &[Vec<String>; 2]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        for key in part {
            hash.update(key);
            hash.update([0]);
        }
    }
    hex::encode(hash.finalize())
}
