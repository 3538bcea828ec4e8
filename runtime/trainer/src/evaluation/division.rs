//! How a job divided data that did not come divided: its model carries that, so that an evaluation can leave out what it was trained on.

use crate::TrainerError;
use frostline_client::{Dataset, LabelTable, Listing, SampleFiles, Samples};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashSet;

/// A division of samples by chance. Those of the same data are divided alike again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Division {
    /// Of each class, to validate with.
    share: f64,
    seed: u64,
    /// Hash of the keys, part by part.
    samples: String,
}

/// What data are to a model that divided its own.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Divided {
    /// The same: these were trained on, and held out.
    Same {
        trained: HashSet<String>,
        held_out: HashSet<String>,
    },
    /// Others, which may be the same in part.
    Others,
    /// Divided by themselves.
    Already,
}

/// Data as they are listed.
#[derive(Clone)]
pub(crate) struct ListedSamples<'a> {
    pub(crate) root: &'a str,
    pub(crate) listing: Listing,
    pub(crate) table: Option<LabelTable>,
    pub(crate) files: SampleFiles,
}

impl ListedSamples<'_> {
    /// Divides them into those to train and those to validate with.
    ///
    /// # Errors
    /// [`TrainerError::Dataset`].
    pub(crate) fn divide(self, share: Option<f64>, seed: u64) -> Result<Dataset, TrainerError> {
        let Self {
            root,
            listing,
            table,
            files,
        } = self;
        let division = frostline_client::Division {
            validation_share: share,
            seed,
            files,
        };
        Ok(match table {
            Some(table) => Dataset::from_table(root, listing, table, division)?,
            None => Dataset::from_listing(root, listing, division)?,
        })
    }
}

impl Division {
    /// That of a `dataset`; `None` where there was no share to divide by.
    pub(crate) fn from_dataset(dataset: &Dataset, share: Option<f64>, seed: u64) -> Option<Self> {
        Some(Self {
            share: share?,
            seed,
            samples: digest(&[&dataset.train, &dataset.validation].map(|part| keys(part, &[], None))),
        })
    }

    /// The division of a model that may have been trained on samples of any part before: of no data it is known what was held out.
    pub(crate) fn with_unknown_past(self) -> Self {
        Self {
            samples: String::new(),
            ..self
        }
    }

    /// The flags that divide alike.
    pub(crate) fn flags(&self) -> String {
        format!("--validation {} --validation-seed {}", self.share, self.seed)
    }

    /// How `data` were divided.
    pub(crate) fn reproduce(&self, data: ListedSamples<'_>) -> Divided {
        self.reproduce_classes(data, None)
    }

    /// How samples of the classes `only` were divided; of all classes without them. Others may have come since.
    pub(crate) fn reproduce_classes(&self, data: ListedSamples<'_>, only: Option<&[String]>) -> Divided {
        let Ok(dataset) = data.divide(Some(self.share), self.seed) else {
            return Divided::Already;
        };
        let parts = [&dataset.train, &dataset.validation].map(|part| keys(part, &dataset.classes, only));
        if digest(&parts) != self.samples {
            return Divided::Others;
        }
        let [trained, held_out] = parts.map(|keys| keys.into_iter().collect());
        Divided::Same { trained, held_out }
    }
}

/// The keys of samples, of the classes `only` where these are given.
fn keys(samples: &Samples, classes: &[String], only: Option<&[String]>) -> Vec<String> {
    let is_meant = |label: u32| {
        let class = classes.get(label as usize);
        only.is_none_or(|only| class.is_some_and(|class| only.contains(class)))
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
