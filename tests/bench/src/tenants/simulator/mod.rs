//! Simulates a device with several jobs in virtual time. With [`Policy::Frostline`], decisions are made by
//! the same code as on hosts. Jobs send all requests for a training batch at the same time, and extract the
//! next batch while training.

mod frostline;
mod job;
mod outcome;
mod residents;
mod scenario;
#[cfg(test)]
mod tests;

pub(super) use outcome::Outcome;
pub(super) use scenario::{Policy, Scenario};

use frostline::Lanes;
use job::Progress;
use outcome::Figures;
use residents::{Admission, Residents};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// A request sent by a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    id: u64,
    job: usize,
    samples: usize,
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Answer {
    id: u64,
    job: usize,
    served: bool,
}

/// Lanes under some policy.
trait SimulatedDevice {
    /// Adds a request.
    fn post(&mut self, request: Request);

    /// Ends and starts due engine batches. Returns the outcomes of requests.
    fn work(&mut self, now: Duration, figures: &mut Figures) -> Vec<Answer>;

    /// Drops the requests of a failed job.
    fn drop_job(&mut self, job: usize);

    /// Time of the next change, if any.
    fn next(&self) -> Option<Duration>;
}

/// Simulates a scenario until all jobs have ended.
pub(super) fn simulate(scenario: &Scenario, policy: Policy) -> Outcome {
    let mut play = Play {
        scenario,
        store: match policy {
            Policy::Frostline => Box::new(Lanes::new(scenario)),
            Policy::Fixed(batch) => Box::new(Residents::new(scenario, Admission::Immediate { batch })),
            Policy::HapiLp => Box::new(Residents::new(scenario, Admission::LinearProgram)),
        },
        jobs: scenario.jobs.iter().map(Progress::new).collect(),
        events: BinaryHeap::new(),
        figures: Figures::default(),
        asked: 0,
    };
    play.play();
    play.figures.outcome(scenario)
}

struct Play<'a> {
    scenario: &'a Scenario,
    store: Box<dyn SimulatedDevice + 'a>,
    jobs: Vec<Progress>,
    /// Times at which a job arrives (false) or has trained a batch (true).
    events: BinaryHeap<Reverse<(Duration, usize, bool)>>,
    figures: Figures,
    asked: u64,
}

impl Play<'_> {
    fn play(&mut self) {
        let arrivals = (0..self.jobs.len()).map(|job| Reverse((Duration::ZERO, job, false)));
        self.events.extend(arrivals);
        let mut now = Duration::ZERO;
        loop {
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            let Some(at) = event.into_iter().chain(self.store.next()).min() else {
                return;
            };
            now = now.max(at);
            while let Some(Reverse((_, index, trained))) = self.pop(now) {
                if trained && let Some(job) = self.jobs.get_mut(index) {
                    job.trained();
                }
                self.advance_job(index, now);
            }
            for answer in self.store.work(now, &mut self.figures) {
                self.apply(answer, now);
            }
        }
    }

    fn pop(&mut self, now: Duration) -> Option<Reverse<(Duration, usize, bool)>> {
        let Reverse((at, ..)) = self.events.peek()?;
        (*at <= now).then(|| self.events.pop()).flatten()
    }

    fn apply(&mut self, answer: Answer, now: Duration) {
        let Some(job) = self.jobs.get_mut(answer.job).filter(|job| !job.is_over()) else {
            return;
        };
        match answer.served {
            true => job.served(),
            false => {
                job.fail();
                self.figures.failed(answer.job, now);
                self.store.drop_job(answer.job);
            }
        }
        self.advance_job(answer.job, now);
    }

    /// Starts a training step if a batch is ready, and sends the next requests.
    fn advance_job(&mut self, index: usize, now: Duration) {
        let (Some(job), Some(terms)) = (self.jobs.get_mut(index), self.scenario.jobs.get(index)) else {
            return;
        };
        if job.train() {
            let until = now.saturating_add(scenario::duration(terms.trainer_seconds));
            self.events.push(Reverse((until, index, true)));
        }
        for samples in job.next_requests() {
            self.asked += 1;
            let request = Request {
                id: self.asked,
                job: index,
                samples,
            };
            self.store.post(request);
        }
        if job.is_done() {
            self.figures.finished(index, now);
        }
        // New requests may start at once.
        self.events_for_work(now);
    }

    fn events_for_work(&mut self, now: Duration) {
        let answers = self.store.work(now, &mut self.figures);
        for answer in answers {
            self.apply(answer, now);
        }
    }
}
