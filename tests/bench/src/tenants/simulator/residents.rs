//! Requests that lie in the device's memory from when they are admitted until they are served, as in HAPI's store.

use super::outcome::Figures;
use super::scenario::{Job, Scenario};
use super::{Answer, Request, Store};
use std::collections::VecDeque;
use std::time::Duration;

/// What HAPI's solver takes.
const SOLVING: Duration = Duration::from_millis(20);

/// The least batch that it gives.
const LEAST: usize = 25;

/// Who gets into memory, with which batch.
#[derive(Debug, Clone, Copy)]
pub(super) enum Admission {
    /// Everybody at once, with this batch; who does not fit fails.
    Everybody { batch: usize },
    /// Those that wait, in order of arrival: all that fit get the least batch, and the first ones as much as they want of what is left.
    Programme,
}

pub(super) struct Residents<'a> {
    jobs: &'a [Job],
    memory: u64,
    admission: Admission,
    waiting: VecDeque<Request>,
    /// When the solver is done.
    solved: Option<Duration>,
    /// Whether something changed since it last was.
    stale: bool,
    /// The one that ran longest ago first.
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
    /// Samples of its run.
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

    /// The solver begins when somebody waits and something changed, and is done a while later.
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

    /// A corner of the programme: the least for everybody that fits, the rest to whoever stands first.
    fn distribute(&mut self) {
        let mut free = self.free();
        let mut admitted: Vec<(Request, usize)> = Vec::new();
        for request in std::mem::take(&mut self.waiting) {
            let least = LEAST.min(request.samples);
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

impl Store for Residents<'_> {
    fn post(&mut self, request: Request) {
        match self.admission {
            Admission::Programme => {
                self.waiting.push_back(request);
                self.stale = true;
            }
            Admission::Everybody { batch } => {
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
        figures.taken(self.memory - self.free());
        std::mem::take(&mut self.answers)
    }

    fn leave(&mut self, job: usize) {
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
