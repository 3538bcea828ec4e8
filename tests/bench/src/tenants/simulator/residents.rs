//! Simulates HAPI's store, where requests occupy device memory from admission to completion.

use super::outcome::Figures;
use super::scenario::{Job, Scenario};
use super::{Answer, Request, SimulatedDevice};
use std::collections::VecDeque;
use std::time::Duration;

/// Run time of HAPI's solver.
const SOLVING: Duration = Duration::from_millis(20);

/// Smallest batch that the solver assigns.
const MIN_BATCH: usize = 25;

/// Rule for admission to memory, with a batch size.
#[derive(Debug, Clone, Copy)]
pub(super) enum Admission {
    /// Immediately admits requests that fit with this batch size. Other requests fail.
    Immediate { batch: usize },
    /// Admits waiting requests in order of arrival: all that fit get the smallest batch, then the first ones
    /// get as much of the remaining memory as they can use.
    LinearProgram,
}

pub(super) struct Residents<'a> {
    jobs: &'a [Job],
    memory: u64,
    admission: Admission,
    waiting: VecDeque<Request>,
    /// End of the solver's current run.
    solved: Option<Duration>,
    /// True if requests or memory have changed since the last solution.
    stale: bool,
    /// Admitted requests, least recently executed first.
    residents: VecDeque<Resident>,
    lanes: Vec<Option<(Duration, u64)>>,
    answers: Vec<Answer>,
}

#[derive(Debug, Clone, Copy)]
struct Resident {
    request: Request,
    batch: usize,
    left: usize,
    bytes: u64,
    /// Samples in the current engine batch, or 0.
    running: usize,
}

impl<'a> Residents<'a> {
    pub(super) fn new(scenario: &'a Scenario, admission: Admission) -> Self {
        Self {
            jobs: &scenario.jobs,
            memory: scenario.memory_bytes,
            admission,
            waiting: VecDeque::new(),
            solved: None,
            stale: false,
            residents: VecDeque::new(),
            lanes: vec![None; scenario.lanes],
            answers: Vec::new(),
        }
    }

    fn free(&self) -> u64 {
        let taken = self.residents.iter().map(|resident| resident.bytes).sum();
        self.memory.saturating_sub(taken)
    }

    fn bytes(&self, request: Request, batch: usize) -> u64 {
        let job = self.jobs.get(request.job);
        job.map_or(0, |job| job.session().saturating_add(job.bytes(batch)))
    }

    fn admit(&mut self, request: Request, batch: usize) {
        let bytes = self.bytes(request, batch);
        self.residents.push_back(Resident {
            request,
            batch,
            left: request.samples,
            bytes,
            running: 0,
        });
    }

    fn answer(&mut self, request: Request, served: bool) {
        self.answers.push(Answer {
            id: request.id,
            job: request.job,
            served,
        });
    }

    fn end(&mut self, now: Duration) {
        for index in 0..self.lanes.len() {
            let Some((until, id)) = self.lanes.get(index).copied().flatten() else {
                continue;
            };
            if until > now {
                continue;
            }
            self.lanes
                .get_mut(index)
                .into_iter()
                .for_each(|lane| *lane = None);
            let at = self
                .residents
                .iter()
                .position(|resident| resident.request.id == id);
            let Some(mut resident) = at.and_then(|at| self.residents.remove(at)) else {
                continue;
            };
            resident.left -= resident.running;
            resident.running = 0;
            if resident.left > 0 {
                self.residents.push_back(resident);
                continue;
            }
            self.stale = true;
            self.answer(resident.request, true);
        }
    }

    /// Applies a finished solution, and starts the solver if requests are waiting and something has changed.
    fn solve(&mut self, now: Duration) {
        if self.solved.is_some_and(|solved| solved <= now) {
            self.solved = None;
            self.distribute();
        }
        if self.solved.is_none() && self.stale && !self.waiting.is_empty() {
            self.stale = false;
            self.solved = Some(now + SOLVING);
        }
    }

    /// Admits a corner of the linear program: the smallest batch for all requests that fit, the remaining
    /// memory for the first ones.
    fn distribute(&mut self) {
        let mut free = self.free();
        let mut admitted: Vec<(Request, usize)> = Vec::new();
        for request in std::mem::take(&mut self.waiting) {
            let least = MIN_BATCH.min(request.samples);
            let needed = self.bytes(request, least);
            if needed > self.memory {
                self.answer(request, false);
            } else if needed > free {
                self.waiting.push_back(request);
            } else {
                free -= needed;
                admitted.push((request, least));
            }
        }
        for (request, mut batch) in admitted {
            let each = self.bytes(request, 1) - self.bytes(request, 0);
            let more = free.checked_div(each).unwrap_or(u64::MAX);
            let more = usize::try_from(more)
                .unwrap_or(usize::MAX)
                .min(request.samples - batch);
            batch += more;
            free = free.saturating_sub(each.saturating_mul(more as u64));
            self.admit(request, batch);
        }
    }

    fn begin(&mut self, now: Duration, figures: &mut Figures) {
        for index in 0..self.lanes.len() {
            if self.lanes.get(index).is_none_or(Option::is_some) {
                continue;
            }
            let Some(at) = self.residents.iter().position(|resident| resident.running == 0) else {
                return;
            };
            let Some(resident) = self.residents.get_mut(at) else {
                return;
            };
            resident.running = resident.batch.min(resident.left);
            let Request { id, job, .. } = resident.request;
            let time = self
                .jobs
                .get(job)
                .map_or(Duration::ZERO, |job| job.time(resident.running));
            figures.ran(job, time);
            self.lanes
                .get_mut(index)
                .into_iter()
                .for_each(|lane| *lane = Some((now + time, id)));
        }
    }
}

impl SimulatedDevice for Residents<'_> {
    fn post(&mut self, request: Request) {
        match self.admission {
            Admission::LinearProgram => {
                self.waiting.push_back(request);
                self.stale = true;
            }
            Admission::Immediate { batch } => {
                let batch = batch.min(request.samples);
                match self.bytes(request, batch) <= self.free() {
                    true => self.admit(request, batch),
                    false => self.answer(request, false),
                }
            }
        }
    }

    fn work(&mut self, now: Duration, figures: &mut Figures) -> Vec<Answer> {
        self.end(now);
        self.solve(now);
        self.begin(now, figures);
        figures.record_memory(self.memory - self.free());
        std::mem::take(&mut self.answers)
    }

    fn drop_job(&mut self, job: usize) {
        self.waiting.retain(|request| request.job != job);
        self.residents
            .retain(|resident| resident.request.job != job || resident.running > 0);
        for resident in self
            .residents
            .iter_mut()
            .filter(|resident| resident.request.job == job)
        {
            resident.left = resident.running;
        }
        self.stale = true;
    }

    fn next(&self) -> Option<Duration> {
        let lanes = self.lanes.iter().flatten().map(|(until, _)| *until);
        lanes.chain(self.solved).min()
    }
}
