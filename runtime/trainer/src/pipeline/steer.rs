use super::batches::Part;
use crate::share::in_whole_grants;
use frostline_client::Source;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Where the next batch is divided. The feed asks it for every batch, so a job changes its split from one batch to the next; batches
/// on their way stay as they were asked for.
pub(crate) struct Steering {
    course: Mutex<Course>,
}

struct Course {
    now: Arc<Source>,
    /// The most of a request of it.
    samples: usize,
    /// Training batches until the next source, for a course that was laid out beforehand.
    legs: VecDeque<(u64, Arc<Source>)>,
}

impl Steering {
    /// One source until [`Steering::turn`].
    pub(crate) fn towards(source: Source) -> Self {
        Self::along(Arc::new(source), VecDeque::new())
    }

    /// Sources for so many training batches each, one after the other; the last one stays.
    pub(crate) fn along(first: Arc<Source>, legs: VecDeque<(u64, Arc<Source>)>) -> Self {
        let course = Course {
            samples: first.request_samples,
            now: first,
            legs,
        };
        Self {
            course: Mutex::new(course),
        }
    }

    /// What the next batch of `part` is asked from.
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

    /// What batches are asked from at present.
    pub(crate) fn now(&self) -> Arc<Source> {
        Arc::clone(&self.course.lock().now)
    }

    /// Asks for later batches from another source.
    pub(crate) fn turn(&self, source: Arc<Source>) {
        let mut course = self.course.lock();
        course.samples = source.request_samples;
        course.now = source;
    }

    /// Asks for later batches in whole grants of so many samples.
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
        let steering = Steering::along(source("a"), VecDeque::new());
        assert_eq!(next(&steering, Part::Train), "a");
        steering.turn(source("b"));
        assert_eq!(next(&steering, Part::Validation), "b");
        assert_eq!(next(&steering, Part::Train), "b");
    }

    #[test]
    fn legs_count_training_batches_and_the_last_one_stays() {
        let legs = [(2, source("a")), (0, source("skipped")), (1, source("b"))];
        let steering = Steering::along(source("a"), legs.into());
        let splits: Vec<String> = (0..5).map(|_| next(&steering, Part::Train)).collect();
        assert_eq!(splits, ["a", "a", "b", "b", "b"]);
    }
}
