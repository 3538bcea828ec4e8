use crate::dataset::Sample;
use crate::retry::sample_may_recover;
use frostline_tensor::OpError;
use std::collections::BTreeMap;

/// How often one sample may fail for a reason that may pass before it counts as bad.
const SAMPLE_ATTEMPTS: u32 = 3;

/// The samples of one request and which of them still have no answer. A position is the sample's index in its batch.
pub(super) struct Pending<'a> {
    missing: BTreeMap<u32, Missing<'a>>,
    bad: Vec<(u32, OpError)>,
    passing: Option<OpError>,
}

struct Missing<'a> {
    sample: &'a Sample,
    failures: u32,
}

impl<'a> Pending<'a> {
    pub(super) fn new(samples: impl Iterator<Item = (u32, &'a Sample)>) -> Self {
        let missing = samples.map(|(position, sample)| (position, Missing { sample, failures: 0 }));
        Self {
            missing: missing.collect(),
            bad: Vec::new(),
            passing: None,
        }
    }

    /// How many have no answer.
    pub(super) fn len(&self) -> usize {
        self.missing.len()
    }

    /// Those without an answer.
    pub(super) fn samples(&self) -> impl Iterator<Item = (u32, &'a Sample)> {
        self.missing
            .iter()
            .map(|(position, missing)| (*position, missing.sample))
    }

    /// The sample at `position` is there.
    pub(super) fn arrived(&mut self, position: u32) {
        self.missing.remove(&position);
    }

    /// The sample at `position` failed on the host: asked for again where that may help, else bad.
    pub(super) fn failed(&mut self, position: u32, error: OpError) {
        let Some(missing) = self.missing.get_mut(&position) else {
            return;
        };
        missing.failures += 1;
        if sample_may_recover(error.code) && missing.failures < SAMPLE_ATTEMPTS {
            self.passing = Some(error);
            return;
        }
        self.spoiled(position, error);
    }

    /// The sample at `position` is bad whatever the host does.
    pub(super) fn spoiled(&mut self, position: u32, error: OpError) {
        self.missing.remove(&position);
        self.bad.push((position, error));
    }

    /// A failure that may pass, if the last attempt met one.
    pub(super) fn take_passing(&mut self) -> Option<OpError> {
        self.passing.take()
    }

    /// The samples that are bad.
    pub(super) fn into_bad(self) -> Vec<(u32, OpError)> {
        self.bad
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_tensor::OpErrorCode;

    #[test]
    fn a_hiccup_is_asked_again_and_a_broken_image_is_not() {
        let sample = Sample {
            key: "a".to_owned(),
            etag: None,
            size: 1,
            label: 0,
        };
        let mut pending = Pending::new((0..3).map(|position| (position, &sample)));
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
}
