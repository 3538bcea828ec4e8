//! What a device would do with given jobs, in virtual time. With [`Policy::Frostline`] the very code decides that decides on hosts.
//! Each job sends the requests of a training batch together, and those of the next while it trains.

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

/// A request that a job sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    id: u64,
    job: usize,
    samples: usize,
}

/// What a request came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Answer {
    id: u64,
    job: usize,
    served: bool,
}

/// Lanes under some policy.
trait Store {
    /// A request comes.
    fn post(&mut self, request: Request);

    /// Ends what is over, begins what can run; what became of requests.
    fn work(&mut self, now: Duration, figures: &mut Figures) -> Vec<Answer>;

    /// A job is over: nobody waits for its requests.
    fn leave(&mut self, job: usize);

    /// When there is something to do next.
    fn next(&self) -> Option<Duration>;
}

/// Plays a scenario to its end.
pub(super) fn simulate(scenario: &Scenario, policy: Policy) -> Outcome {
    let mut play = Play {
        scenario,
        store: match policy {
            Policy::Frostline => Box::new(Lanes::new(scenario)),
            Policy::Fixed(batch) => Box::new(Residents::new(scenario, Admission::Everybody { batch })),
            Policy::HapiLp => Box::new(Residents::new(scenario, Admission::Programme)),
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
    store: Box<dyn Store + 'a>,
    jobs: Vec<Progress>,
    /// When which job arrives, or has trained a batch.
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
                self.go_on(index, now);
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
                self.store.leave(answer.job);
            }
        }
        self.go_on(answer.job, now);
    }

    /// A job trains what is there, and asks for more.
    fn go_on(&mut self, index: usize, now: Duration) {
        let (Some(job), Some(terms)) = (self.jobs.get_mut(index), self.scenario.jobs.get(index)) else {
            return;
        };
        if job.train() {
            let until = now.saturating_add(scenario::duration(terms.trainer_seconds));
            self.events.push(Reverse((until, index, true)));
        }
        for samples in job.ask() {
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
        // What was asked just now may run at once.
        self.events_for_work(now);
    }

    fn events_for_work(&mut self, now: Duration) {
        let answers = self.store.work(now, &mut self.figures);
        for answer in answers {
            self.apply(answer, now);
        }
    }
}
