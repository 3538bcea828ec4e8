use super::batches::Part;
use crate::{Event, Events, OnBadSample, TrainerError};
use frostline_tensor::OpError;
use frostline_wire::ObjectInfo;
use parking_lot::Mutex;
use std::collections::HashSet;

/// Unusable samples and the policy of handling bad samples. Holds up to one entry per sample of the dataset.
pub(crate) struct BadSamples {
    policy: OnBadSample,
    events: Events,
    state: Mutex<BadSampleState>,
}

#[derive(Default)]
struct BadSampleState {
    samples: HashSet<(Part, usize)>,
    last: Option<(String, OpError)>,
}

impl BadSamples {
    pub(crate) fn new(policy: OnBadSample, events: Events) -> Self {
        Self {
            policy,
            events,
            state: Mutex::default(),
        }
    }

    /// Records that sample `index` of `part` is bad.
    ///
    /// # Errors
    /// Returns [`TrainerError::BadSample`] if the policy is [`OnBadSample::Fail`].
    pub(crate) fn record(
        &self,
        part: Part,
        index: usize,
        sample: &ObjectInfo,
        error: &OpError,
    ) -> Result<(), TrainerError> {
        let key = sample.sample.key.clone();
        let message = error.message.clone();
        let source = OpError::new(error.code, message.clone());
        if self.policy == OnBadSample::Fail {
            return Err(TrainerError::BadSample { key, source });
        }
        let mut noted = self.state.lock();
        noted.last = Some((key.clone(), source));
        if noted.samples.insert((part, index)) {
            (self.events)(Event::BadSample { key, message });
        }
        Ok(())
    }

    /// Restores bad samples from a checkpoint.
    pub(crate) fn restore(&self, samples: impl IntoIterator<Item = (Part, usize)>) {
        self.state.lock().samples.extend(samples);
    }

    /// Returns all bad samples: training before validation, sorted by index.
    pub(crate) fn all(&self) -> Vec<(Part, usize)> {
        let mut all: Vec<(Part, usize)> = self.state.lock().samples.iter().copied().collect();
        all.sort_unstable_by_key(|(part, index)| (*part == Part::Validation, *index));
        all
    }

    pub(crate) fn contains(&self, part: Part, index: usize) -> bool {
        self.state.lock().samples.contains(&(part, index))
    }

    pub(crate) fn count(&self) -> u64 {
        self.state.lock().samples.len() as u64
    }

    /// Returns the error for a part with only bad samples.
    pub(crate) fn nothing_left(&self, part: Part, count: usize) -> TrainerError {
        let last = self.state.lock().last.clone();
        let (key, source) = last.unwrap_or_else(|| (String::new(), OpError::runtime(String::new())));
        TrainerError::AllBad {
            part: part.name(),
            count,
            key,
            source,
        }
    }
}
