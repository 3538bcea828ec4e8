use super::Listing;
use frostline_wire::ObjectInfo;
use std::sync::Arc;

/// Samples of a data set: which objects of its listing, and of which class or with which values. Clones and parts share listing and values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples {
    listing: Arc<Listing>,
    rows: Vec<Row>,
    values: Option<Arc<Values>>,
}

/// What samples have instead of a class.
#[derive(Debug, PartialEq)]
pub(crate) struct Values {
    /// Of a sample.
    pub(crate) width: usize,
    /// Those of one sample after those of another.
    pub(crate) all: Vec<f32>,
}

/// A sample: the number of its object, and that of its class or, where there are values, of its place among them.
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

    /// Samples whose labels are places among `values`.
    pub(crate) fn with_values(self, values: &Arc<Values>) -> Self {
        Self {
            values: Some(Arc::clone(values)),
            ..self
        }
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
    pub fn get(&self, index: usize) -> Option<ObjectInfo> {
        self.sample(self.rows.get(index)?)
    }

    /// The index of the class of the sample at `index`; none where samples have values.
    pub fn label(&self, index: usize) -> Option<u32> {
        let row = self.rows.get(index).filter(|_| self.values.is_none())?;
        Some(row.label)
    }

    /// The values of the sample at `index`; none where samples have classes.
    pub fn values(&self, index: usize) -> Option<&[f32]> {
        let (row, values) = (self.rows.get(index)?, self.values.as_ref()?);
        let start = row.label as usize * values.width;
        values.all.get(start..start + values.width)
    }

    /// All of them with their classes, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectInfo, u32)> {
        self.rows
            .iter()
            .filter_map(|row| Some((self.sample(row)?, row.label)))
    }

    /// Leaves out all but those to `keep`.
    pub fn retain(&mut self, keep: impl Fn(&ObjectInfo) -> bool) {
        let listing = Arc::clone(&self.listing);
        let keeps = |row: &Row| listing.get(row.object).is_some_and(|object| keep(&object.into()));
        self.rows.retain(keeps);
    }

    /// Their sizes in bytes, in their order.
    pub fn sizes(&self) -> impl Iterator<Item = u64> {
        self.rows.iter().map(|row| self.listing.size(row.object))
    }

    /// `count` of them, evenly spread so that all classes have their share.
    pub fn spread(&self, count: usize) -> Vec<ObjectInfo> {
        let count = count.min(self.len());
        let picked = (0..count).filter_map(|index| self.rows.get(index * self.len() / count));
        picked.filter_map(|row| self.sample(row)).collect()
    }

    /// Bytes of the `count` largest objects together.
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

/// Samples with their classes, where it is not a listing that says them.
impl FromIterator<(ObjectInfo, u32)> for Samples {
    fn from_iter<I: IntoIterator<Item = (ObjectInfo, u32)>>(samples: I) -> Self {
        let (mut listing, mut rows) = (Listing::default(), Vec::new());
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
