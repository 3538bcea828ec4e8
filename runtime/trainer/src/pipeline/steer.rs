use super::batches::Part;
use frostline_client::Source;
use frostline_plan::round_to_grants;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Source of the next batch. The feed reads it for each batch, so the split can change between batches.
/// Batches in flight are not affected.
pub(crate) struct Steering(Mutex<SteeringState>);

struct SteeringState {
    current: Arc<Source>,
    /// Limit of samples per request, before rounding to grants.
    max_request_samples: usize,
    /// Scheduled sources with the number of training batches left for each.
    schedule: VecDeque<(u64, Arc<Source>)>,
}

impl Steering {
    /// Uses `source` until a call of [`Steering::set_source`].
    pub(crate) fn fixed(source: Source) -> Self {
        Self::scheduled(Arc::new(source), VecDeque::new())
    }

    /// Uses each source for the given number of training batches and then keeps the last one.
    pub(crate) fn scheduled(first: Arc<Source>, schedule: VecDeque<(u64, Arc<Source>)>) -> Self {
        Self(Mutex::new(SteeringState {
            max_request_samples: first.request_samples,
            current: first,
            schedule,
        }))
    }

    /// Returns the source of the next batch of `part`. Training batches advance the schedule.
    pub(crate) fn next(&self, part: Part) -> Arc<Source> {
        let mut state = self.0.lock();
        if part == Part::Train {
            while state.schedule.front().is_some_and(|(left, _)| *left == 0) {
                state.schedule.pop_front();
            }
            if let Some((left, source)) = state.schedule.front_mut() {
                *left -= 1;
                state.current = Arc::clone(source);
            }
        }
        Arc::clone(&state.current)
    }

    pub(crate) fn current(&self) -> Arc<Source> {
        Arc::clone(&self.0.lock().current)
    }

    /// Changes the source of later batches.
    pub(crate) fn set_source(&self, source: Arc<Source>) {
        let mut state = self.0.lock();
        state.max_request_samples = source.request_samples;
        state.current = source;
    }

    /// Rounds later requests to whole grants of `grant` samples. Scheduled sources are not changed.
    pub(crate) fn round_to_grants(&self, grant: Option<usize>) {
        let mut state = self.0.lock();
        let request_samples = round_to_grants(state.max_request_samples, grant);
        if state.schedule.is_empty() && request_samples != state.current.request_samples {
            state.current = Arc::new(Source {
                request_samples,
                ..Source::clone(&state.current)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_client::RowKind;
    use frostline_wire::{Encoding, Split, Terms};

    fn source(split: &str) -> Arc<Source> {
        Arc::new(Source {
            root: "data".to_owned(),
            split: Split::from(split),
            encoding: Encoding::F32,
            guest: None,
            model: None,
            parameters: String::new(),
            terms: Terms::default(),
            view: None,
            rows: RowKind::Values,
            shape: vec![1],
            tensors: Vec::new(),
            request_samples: 1,
        })
    }

    fn next(steering: &Steering, part: Part) -> String {
        steering.next(part).split.to_string()
    }

    #[test]
    fn a_new_source_applies_from_the_next_batch() {
        let steering = Steering::scheduled(source("a"), VecDeque::new());
        assert_eq!(next(&steering, Part::Train), "a");
        steering.set_source(source("b"));
        assert_eq!(next(&steering, Part::Validation), "b");
        assert_eq!(next(&steering, Part::Train), "b");
    }

    #[test]
    fn a_schedule_counts_training_batches_and_keeps_its_last_source() {
        let legs = [(2, source("a")), (0, source("skipped")), (1, source("b"))];
        let steering = Steering::scheduled(source("a"), legs.into());
        let splits: Vec<String> = (0..5).map(|_| next(&steering, Part::Train)).collect();
        assert_eq!(splits, ["a", "a", "b", "b", "b"]);
    }
}
