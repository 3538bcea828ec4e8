use super::Listing;
use frostline_wire::ObjectInfo;
use std::sync::Arc;

/// Samples in a data set. Each sample is an object in a listing with a class or values. Clones and subsets
/// share the listing and the values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples {
    listing: Arc<Listing>,
    rows: Vec<Row>,
    values: Option<Arc<SampleValues>>,
}

/// Values of samples in tasks without classes.
#[derive(Debug, PartialEq)]
pub(crate) struct SampleValues {
    /// Number of values per sample.
    pub(crate) width: usize,
    /// Values of all samples, concatenated.
    pub(crate) values: Vec<f32>,
}

/// A sample. `object` is the index in the listing. `label` is the index of the class or, if there are values,
/// of the row in [`SampleValues`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) object: u32,
    pub(crate) label: u32,
}

impl Samples {
    pub(crate) fn new(listing: Arc<Listing>, rows: Vec<Row>) -> Self {
        Self {
            listing,
            rows,
            values: None,
        }
    }

    /// Sets the values. Labels become row indices in `values`.
    pub(crate) fn with_values(self, values: &Arc<SampleValues>) -> Self {
        Self {
            values: Some(Arc::clone(values)),
            ..self
        }
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the sample at `index`.
    pub fn get(&self, index: usize) -> Option<ObjectInfo> {
        self.sample(self.rows.get(index)?)
    }

    /// Returns the class index of the sample at `index`, or `None` if samples have values.
    pub fn label(&self, index: usize) -> Option<u32> {
        let row = self.rows.get(index).filter(|_| self.values.is_none())?;
        Some(row.label)
    }

    /// Returns the values of the sample at `index`, or `None` if samples have classes.
    pub fn values(&self, index: usize) -> Option<&[f32]> {
        let row = self.rows.get(index)?;
        let values = self.values.as_ref()?;
        let start = row.label as usize * values.width;
        values.values.get(start..start + values.width)
    }

    /// Iterates over all samples in order, with class indices.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectInfo, u32)> {
        self.rows
            .iter()
            .filter_map(|row| Some((self.sample(row)?, row.label)))
    }

    /// Removes all samples for which `keep` is false.
    pub fn retain(&mut self, keep: impl Fn(&ObjectInfo) -> bool) {
        let listing = Arc::clone(&self.listing);
        self.rows
            .retain(|row| listing.get(row.object).is_some_and(|object| keep(&object.into())));
    }

    /// Returns the samples with the given indices in the sequence of `self` and `other`, which share a listing. A class replaces the class of the sample. Indices out of range are dropped.
    #[must_use]
    pub fn arranged(&self, other: &Self, indices: impl Iterator<Item = (usize, Option<u32>)>) -> Self {
        Self {
            rows: indices
                .filter_map(|(index, class)| {
                    let own = self.rows.get(index);
                    let row = own.or_else(|| other.rows.get(index.checked_sub(self.len())?))?;
                    let label = class.unwrap_or(row.label);
                    Some(Row { label, ..*row })
                })
                .collect(),
            ..self.clone()
        }
    }

    /// Iterates over the sample sizes in bytes.
    pub fn sizes(&self) -> impl Iterator<Item = u64> {
        self.rows.iter().map(|row| self.listing.size(row.object))
    }

    /// Returns `count` samples at regular intervals, so that all classes are represented in proportion.
    pub fn spread(&self, count: usize) -> Vec<ObjectInfo> {
        let count = count.min(self.len());
        let picked = (0..count).filter_map(|index| self.rows.get(index * self.len() / count));
        picked.filter_map(|row| self.sample(row)).collect()
    }

    /// Returns the total size in bytes of the `count` largest objects.
    pub fn largest(&self, count: usize) -> u64 {
        let mut sizes: Vec<u64> = self.sizes().collect();
        let count = count.min(sizes.len());
        if let Some(last) = count.checked_sub(1) {
            sizes.select_nth_unstable_by(last, |left, right| right.cmp(left));
        }
        sizes.into_iter().take(count).fold(0, u64::saturating_add)
    }

    fn sample(&self, row: &Row) -> Option<ObjectInfo> {
        Some(self.listing.get(row.object)?.into())
    }
}

/// Samples with class indices from a source other than a listing.
impl FromIterator<(ObjectInfo, u32)> for Samples {
    fn from_iter<I: IntoIterator<Item = (ObjectInfo, u32)>>(samples: I) -> Self {
        let mut listing = Listing::default();
        let mut rows = Vec::new();
        for (object, (sample, label)) in (0..).zip(samples) {
            listing.extend([sample]);
            rows.push(Row { object, label });
        }
        Self::new(Arc::new(listing), rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_wire::SampleRef;

    fn sized(sizes: &[u64]) -> Samples {
        let sample = |(number, size): (usize, &u64)| ObjectInfo {
            sample: SampleRef::new(number.to_string()),
            size: *size,
            label: None,
            changed: None,
        };
        sizes.iter().enumerate().map(|sized| (sample(sized), 0)).collect()
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
