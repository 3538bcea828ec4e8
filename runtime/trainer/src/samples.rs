use crate::listing::Listing;
use frostline_wire::{ObjectInfo, SampleRef};
use std::sync::Arc;

/// Samples of a data set: which objects of its listing, and of which class. Clones and parts share the listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Samples {
    listing: Arc<Listing>,
    rows: Vec<Row>,
}

/// A sample: the number of its object and that of its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) object: u32,
    pub(crate) label: u32,
}

/// One object and its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The object: its key and version.
    pub object: SampleRef,
    /// Its size in bytes.
    pub size: u64,
    /// Index of its class.
    pub label: u32,
}

impl Samples {
    pub(crate) fn new(listing: Arc<Listing>, rows: Vec<Row>) -> Self {
        Self { listing, rows }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The sample at `index`.
    pub fn get(&self, index: usize) -> Option<Sample> {
        self.sample(self.rows.get(index)?)
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = Sample> {
        self.rows.iter().filter_map(|row| self.sample(row))
    }

    /// Their sizes in bytes, in their order.
    pub fn sizes(&self) -> impl Iterator<Item = u64> {
        self.rows.iter().map(|row| self.listing.size(row.object))
    }

    /// `count` of them, evenly spread so that all classes have their share.
    pub(crate) fn spread(&self, count: usize) -> Vec<ObjectInfo> {
        let count = count.min(self.len());
        let picked = (0..count).filter_map(|index| self.rows.get(index * self.len() / count));
        picked
            .filter_map(|row| Some(self.listing.get(row.object)?.into()))
            .collect()
    }

    /// Bytes of the `count` largest objects together.
    pub(crate) fn largest(&self, count: usize) -> u64 {
        let mut sizes: Vec<u64> = self.sizes().collect();
        let count = count.min(sizes.len());
        if let Some(last) = count.checked_sub(1) {
            sizes.select_nth_unstable_by(last, |left, right| right.cmp(left));
        }
        sizes.into_iter().take(count).fold(0, u64::saturating_add)
    }

    fn sample(&self, row: &Row) -> Option<Sample> {
        let object = self.listing.get(row.object)?;
        Some(Sample {
            object: object.sample(),
            size: object.size,
            label: row.label,
        })
    }
}

#[cfg(test)]
impl FromIterator<Sample> for Samples {
    fn from_iter<I: IntoIterator<Item = Sample>>(samples: I) -> Self {
        let (mut objects, mut rows) = (Vec::new(), Vec::new());
        for (object, sample) in (0..).zip(samples) {
            rows.push(Row {
                object,
                label: sample.label,
            });
            objects.push(ObjectInfo {
                sample: sample.object,
                size: sample.size,
                label: None,
            });
        }
        Self::new(Arc::new(objects.into_iter().collect()), rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(sizes: &[u64]) -> Samples {
        let sample = |(number, size): (usize, &u64)| Sample {
            object: SampleRef::new(number.to_string()),
            size: *size,
            label: 0,
        };
        sizes.iter().enumerate().map(sample).collect()
    }

    #[test]
    fn the_largest_are_those_a_batch_may_hold_at_worst() {
        let samples = sized(&[3, 9, 1, 9, 5]);
        assert_eq!(
            [0, 1, 3, 5, 100].map(|count| samples.largest(count)),
            [0, 9, 23, 27, 27]
        );
        assert_eq!(sized(&[u64::MAX, 1]).largest(2), u64::MAX);
        assert_eq!(Samples::default().largest(3), 0);
    }

    #[test]
    fn some_are_picked_from_all_over() {
        let keys = |count| -> Vec<String> {
            let picked = sized(&[1; 6]).spread(count).into_iter();
            picked.map(|object| object.sample.key).collect()
        };
        assert_eq!(keys(2), ["0", "3"]);
        assert_eq!(keys(9).len(), 6);
        assert!(keys(0).is_empty());
    }
}
