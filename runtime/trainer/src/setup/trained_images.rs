//! Records the training images in the metadata of a model.

use frostline_client::Samples;
use frostline_tensor::SampleRef;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// Maximum number of hashes, which take up 40 kB of metadata.
const MOST: usize = 2048;

/// Hashes of file names and versions, which remain the same if a file is moved to another folder. If there are
/// more than [`MOST`] images, the smallest hashes are kept, which is a uniform sample of the images (a bottom-k
/// sketch, Cohen and Kaplan, "Summarizing data using bottom-k sketches", PODC 2007).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TrainedImages(BTreeSet<u64>);

impl TrainedImages {
    /// Returns the images of `samples` that have a version.
    pub(super) fn from_samples(samples: &Samples) -> Self {
        let mut images = Self::default();
        for hash in samples.iter().filter_map(|(object, _)| hash(&object.sample)) {
            images.add(hash);
        }
        images
    }

    /// Adds the images of an earlier training.
    pub(super) fn and(mut self, earlier: &Self) -> Self {
        earlier.0.iter().for_each(|hash| self.add(*hash));
        self
    }

    /// Returns the number of known images in `validation` that are not in `train`. An image in both is a copy, which
    /// this training would see in any case.
    pub(super) fn moved(&self, train: &Samples, validation: &Samples) -> usize {
        self.known(validation).difference(&self.known(train)).count()
    }

    /// Returns the hashes of the known images in `samples`.
    fn known(&self, samples: &Samples) -> BTreeSet<u64> {
        let hashes = samples.iter().filter_map(|(object, _)| hash(&object.sample));
        hashes.filter(|hash| self.0.contains(hash)).collect()
    }

    fn add(&mut self, hash: u64) {
        self.0.insert(hash);
        if self.0.len() > MOST {
            self.0.pop_last();
        }
    }
}

fn hash(sample: &SampleRef) -> Option<u64> {
    let name = sample.key.rsplit('/').next()?;
    let mut hash = Sha256::new();
    hash.update(name);
    hash.update([0]);
    hash.update(sample.etag.as_ref()?);
    hash.finalize()
        .first_chunk()
        .map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_sets_are_sampled() {
        let mut all = TrainedImages::default();
        let hashes: Vec<u64> = (0..10 * MOST)
            .filter_map(|number| {
                hash(&SampleRef {
                    etag: Some("1".to_owned()),
                    ..SampleRef::new(format!("train/cat/{number}.jpg"))
                })
            })
            .collect();
        hashes.iter().for_each(|hash| all.add(*hash));
        assert_eq!(all.0.len(), MOST);
        let mut halves = hashes.chunks(5 * MOST).map(|half| {
            let mut images = TrainedImages::default();
            half.iter().for_each(|hash| images.add(*hash));
            images
        });
        let first = halves.next().unwrap();
        assert_eq!(first.and(&halves.next().unwrap()), all);
        // The chance that none of 1,024 images is in a sample of 1 in 10 is below 1e-46.
        let found = hashes[..1024].iter().filter(|hash| all.0.contains(hash)).count();
        assert!(found > 0);
    }
}
