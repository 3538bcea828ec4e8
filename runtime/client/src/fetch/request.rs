use crate::retry::sample_may_recover;
use frostline_tensor::OpError;
use frostline_wire::ObjectInfo;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of transient failures that make a sample bad.
const SAMPLE_ATTEMPTS: u32 = 3;

/// Tracks the unanswered samples in a request. A position is the index of a sample in the batch.
pub(super) struct PendingSamples {
    batch: Arc<[ObjectInfo]>,
    /// Number of failures of each unanswered sample. The key is the position. Failures that the host caused
    /// are not counted.
    missing: BTreeMap<u32, u32>,
    bad: Vec<(u32, OpError)>,
    passing: Option<OpError>,
    /// Corrupt rows in the last attempts.
    altered: usize,
    /// Number of consecutive answers in which every sample failed because of the host.
    outages: usize,
}

impl PendingSamples {
    /// Creates a request for the samples of `batch` at these positions.
    pub(super) fn new(batch: Arc<[ObjectInfo]>, positions: impl Iterator<Item = u32>) -> Self {
        Self::with_attempts(batch, positions.map(|position| (position, 0)).collect())
    }

    fn with_attempts(batch: Arc<[ObjectInfo]>, missing: BTreeMap<u32, u32>) -> Self {
        Self {
            batch,
            missing,
            bad: Vec::new(),
            passing: None,
            altered: 0,
            outages: 0,
        }
    }

    /// Divides the missing samples into groups. `number` maps a sample to a group. Failure counts are
    /// preserved.
    pub(super) fn divide(&self, number: impl Fn(&ObjectInfo) -> usize) -> BTreeMap<usize, Self> {
        let mut groups = BTreeMap::<usize, Self>::new();
        for (position, sample) in self.samples() {
            let group = groups.entry(number(sample));
            let group =
                group.or_insert_with(|| Self::with_attempts(Arc::clone(&self.batch), BTreeMap::new()));
            let failures = self.missing.get(&position).copied().unwrap_or(0);
            group.missing.insert(position, failures);
            group.outages = self.outages;
        }
        groups
    }

    /// Returns the samples to request next. While every sample fails because of the host, for example because its
    /// store is down, this is a single one, so that the errors of all samples are not sent again and again. It is
    /// another one each time, because the store may only fail for some objects.
    pub(super) fn requested(&self) -> impl Iterator<Item = (u32, &ObjectInfo)> {
        let skipped = self.outages.checked_rem(self.len()).unwrap_or(0);
        let (first, number) = match self.outages {
            0 => (0, usize::MAX),
            _ => (skipped, 1),
        };
        self.samples().skip(first).take(number)
    }

    /// Records an answer in which all requested samples failed because of the host.
    pub(super) fn outage(&mut self) {
        self.outages += 1;
    }

    /// Number of unanswered samples.
    pub(super) fn len(&self) -> usize {
        self.missing.len()
    }

    /// Unanswered samples with positions.
    pub(super) fn samples(&self) -> impl Iterator<Item = (u32, &ObjectInfo)> {
        self.missing
            .keys()
            .filter_map(|position| Some((*position, self.batch.get(*position as usize)?)))
    }

    /// Returns the key of the sample at `position`, or an empty string if the position is invalid.
    pub(super) fn key(&self, position: u32) -> String {
        let sample = self.batch.get(position as usize);
        sample.map(|sample| sample.sample.key.clone()).unwrap_or_default()
    }

    /// Records the arrival of the sample at `position`.
    pub(super) fn arrived(&mut self, position: u32) {
        self.outages = 0;
        self.missing.remove(&position);
    }

    /// Records a failure on the host of the sample at `position`. The sample is requested again if the
    /// failure may be transient, and becomes bad otherwise. Failures that the host caused are not counted.
    pub(super) fn failed(&mut self, position: u32, error: OpError) {
        let Some(failures) = self.missing.get_mut(&position) else {
            return;
        };
        if error.host_caused {
            self.passing = Some(error);
            return;
        }
        self.outages = 0;
        *failures += 1;
        if sample_may_recover(error.code) && *failures < SAMPLE_ATTEMPTS {
            self.passing = Some(error);
            return;
        }
        self.mark_bad(position, error);
    }

    /// Marks the sample at `position` as bad. Reports include the key of a bad sample, so the key is removed
    /// from the start of the error message.
    pub(super) fn mark_bad(&mut self, position: u32, mut error: OpError) {
        self.missing.remove(&position);
        let key = format!("{}: ", self.key(position));
        if let Some(message) = error.message.strip_prefix(&key) {
            error.message = message.to_owned();
        }
        self.bad.push((position, error));
    }

    /// Records a corrupt row. The sample is unknown and remains missing.
    pub(super) fn altered(&mut self) {
        self.altered += 1;
    }

    /// Returns and resets the number of corrupt rows.
    pub(super) fn take_altered(&mut self) -> usize {
        std::mem::take(&mut self.altered)
    }

    /// Returns and resets the last transient failure, if any.
    pub(super) fn take_passing(&mut self) -> Option<OpError> {
        self.passing.take()
    }

    pub(super) fn into_bad(self) -> Vec<(u32, OpError)> {
        self.bad
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_tensor::{OpErrorCode, SampleRef};

    fn batch(count: usize) -> Arc<[ObjectInfo]> {
        let sample = |number| ObjectInfo {
            label: None,
            sample: SampleRef::new(format!("{number}")),
            size: 1,
            changed: None,
        };
        (0..count).map(sample).collect()
    }

    #[test]
    fn dividing_missing_samples_keeps_failure_counts() {
        let mut pending = PendingSamples::new(batch(6), 1..6);
        pending.arrived(2);
        pending.failed(3, OpError::new(OpErrorCode::Timeout, "slow store"));
        pending.failed(3, OpError::new(OpErrorCode::Timeout, "slow store"));
        let mut groups = pending.divide(|sample| sample.sample.key.parse::<usize>().unwrap() % 2);
        let positions = |pending: &PendingSamples| {
            pending
                .samples()
                .map(|(position, _)| position)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (positions(&groups[&0]), positions(&groups[&1])),
            (vec![4], vec![1, 3, 5])
        );
        let odd = groups.get_mut(&1).unwrap();
        odd.failed(3, OpError::new(OpErrorCode::Timeout, "slow store"));
        assert_eq!(
            positions(odd),
            [1, 5],
            "the sample is bad after three failures on any hosts"
        );
    }

    #[test]
    fn a_hiccup_is_asked_again_and_a_broken_image_is_not() {
        let mut pending = PendingSamples::new(batch(3), 0..3);
        pending.arrived(0);
        pending.failed(1, OpError::new(OpErrorCode::InvalidEncoding, "no JPEG"));
        for _ in 0..2 {
            pending.failed(2, OpError::new(OpErrorCode::Timeout, "slow store"));
            assert_eq!(
                pending
                    .samples()
                    .map(|(position, _)| position)
                    .collect::<Vec<_>>(),
                [2]
            );
            assert!(pending.take_passing().is_some());
        }
        pending.failed(2, OpError::new(OpErrorCode::Timeout, "slow store"));
        assert_eq!((pending.len(), pending.take_passing()), (0, None));
        let bad: Vec<u32> = pending
            .into_bad()
            .into_iter()
            .map(|(position, _)| position)
            .collect();
        assert_eq!(bad, [1, 2]);
    }

    #[test]
    fn what_the_host_caused_never_makes_a_sample_bad() {
        let mut pending = PendingSamples::new(batch(1), 0..1);
        for _ in 0..100 {
            pending.failed(0, OpError::from_host(OpErrorCode::TooLarge, "the queue is full"));
            assert!(pending.take_passing().is_some_and(|error| error.host_caused));
        }
        assert_eq!(pending.len(), 1);
        assert!(pending.into_bad().is_empty());
    }

    #[test]
    fn during_an_outage_one_sample_after_the_other_is_requested() {
        let mut pending = PendingSamples::new(batch(3), 0..3);
        let mut requested = Vec::new();
        for _ in 0..4 {
            let positions: Vec<u32> = pending.requested().map(|(position, _)| position).collect();
            for position in &positions {
                pending.failed(*position, OpError::from_host(OpErrorCode::Timeout, "no answer"));
            }
            pending.outage();
            requested.push(positions);
        }
        assert_eq!(requested, [vec![0, 1, 2], vec![1], vec![2], vec![0]]);
        pending.arrived(1);
        assert_eq!(
            pending.requested().count(),
            2,
            "all missing samples, as the outage is over"
        );
    }

    #[test]
    fn a_bad_sample_is_named_once() {
        let mut pending = PendingSamples::new(batch(2), 0..2);
        pending.mark_bad(1, OpError::new(OpErrorCode::InvalidArgument, "1: no JPEG"));
        pending.mark_bad(
            0,
            OpError::new(OpErrorCode::InvalidArgument, "the object '0' is gone"),
        );
        let told: Vec<String> = pending
            .into_bad()
            .into_iter()
            .map(|(_, error)| error.message)
            .collect();
        assert_eq!(told, ["no JPEG", "the object '0' is gone"]);
    }
}
