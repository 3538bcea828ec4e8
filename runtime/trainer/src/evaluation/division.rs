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
            samples: digest(dataset),
        })
    }

    /// How `data` were divided.
    pub(crate) fn reproduce(&self, data: ListedSamples<'_>) -> Divided {
        match data.divide(Some(self.share), self.seed) {
            Err(_) => Divided::Already,
            Ok(dataset) if digest(&dataset) == self.samples => Divided::Same {
                trained: keys(&dataset.train).collect(),
                held_out: keys(&dataset.validation).collect(),
            },
            Ok(_) => Divided::Others,
        }
    }
}

fn keys(samples: &Samples) -> impl Iterator<Item = String> {
    samples.iter().map(|(sample, _)| sample.sample.key)
}

fn digest(dataset: &Dataset) -> String {
    let mut hash = Sha256::new();
    for part in [&dataset.train, &dataset.validation] {
        hash.update((part.len() as u64).to_le_bytes());
        for key in keys(part) {
            hash.update(key);
            hash.update([0]);
        }
    }
    hex::encode(hash.finalize())
}
