use super::batches::Part;
use crate::host_loads::in_whole_grants;
use frostline_client::Source;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Source of the next batch. The feed reads it for each batch, so the split can change between batches.
/// Batches in flight are not affected.
pub(crate) struct Steering {
    course: Mutex<SteeringState>,
}

struct SteeringState {
    now: Arc<Source>,
    /// Limit of samples per request, before rounding to grants.
    samples: usize,
    /// Scheduled sources with the number of training batches left for each.
    legs: VecDeque<(u64, Arc<Source>)>,
}

impl Steering {
    /// Uses `source` until a call of [`Steering::set_source`].
    pub(crate) fn fixed(source: Source) -> Self {
        Self::scheduled(Arc::new(source), VecDeque::new())
    }

    /// Uses each source for the given number of training batches and then keeps the last one.
    pub(crate) fn scheduled(first: Arc<Source>, legs: VecDeque<(u64, Arc<Source>)>) -> Self {
        let course = SteeringState {
            samples: first.request_samples,
            now: first,
            legs,
        };
        Self {
            course: Mutex::new(course),
        }
    }

    /// Returns the source of the next batch of `part`. Training batches advance the schedule.
    pub(crate) fn next(&self, part: Part) -> Arc<Source> {
        let mut course = self.course.lock();
        if part == Part::Train {
            while course.legs.front().is_some_and(|(left, _)| *left == 0) {
                course.legs.pop_front();
            }
            if let Some((left, source)) = course.legs.front_mut() {
                *left -= 1;
                course.now = Arc::clone(source);
            }
        }
        Arc::clone(&course.now)
    }

    /// The current source.
    pub(crate) fn now(&self) -> Arc<Source> {
        Arc::clone(&self.course.lock().now)
    }

    /// Changes the source of later batches.
    pub(crate) fn set_source(&self, source: Arc<Source>) {
        let mut course = self.course.lock();
        course.samples = source.request_samples;
        course.now = source;
    }

    /// Rounds later requests to whole grants of `grant` samples. Scheduled sources are not changed.
    pub(crate) fn grant(&self, grant: Option<usize>) {
        let mut course = self.course.lock();
        let request_samples = in_whole_grants(course.samples, grant);
        if course.legs.is_empty() && request_samples != course.now.request_samples {
            course.now = Arc::new(Source {
                request_samples,
                ..Source::clone(&course.now)
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
            request_samples: 1,
        })
    }

    fn next(steering: &Steering, part: Part) -> String {
        steering.next(part).split.to_string()
    }

    #[test]
    fn a_turn_holds_from_the_next_batch_on() {
        let steering = Steering::scheduled(source("a"), VecDeque::new());
        assert_eq!(next(&steering, Part::Train), "a");
        steering.set_source(source("b"));
        assert_eq!(next(&steering, Part::Validation), "b");
        assert_eq!(next(&steering, Part::Train), "b");
    }

    #[test]
    fn legs_count_training_batches_and_the_last_one_stays() {
        let legs = [(2, source("a")), (0, source("skipped")), (1, source("b"))];
        let steering = Steering::scheduled(source("a"), legs.into());
        let splits: Vec<String> = (0..5).map(|_| next(&steering, Part::Train)).collect();
        assert_eq!(splits, ["a", "a", "b", "b", "b"]);
    }
}
