//! Simulates lanes with the same [`Device`] and [`Ledger`] as on hosts.

use super::outcome::Figures;
use super::scenario::{Job, Scenario};
use super::{Answer, Request, SimulatedDevice};
use frostline_batching::device::{
    BatchEnd, Decision, Device, DeviceRules, LaneMemory, MemoryEstimate, MemoryUsage, PartOutcome, Run, Work,
};
use frostline_batching::{Budget, Kind, Ledger, Reservation};
use frostline_tensor::ExecutionTerms;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::time::Duration;

/// Initial memory estimates on hosts have been up to 4.4 times too low.
const GUESS: f64 = 4.4;

pub(super) struct Lanes<'a> {
    jobs: &'a [Job],
    device: Device<Stage>,
    ledger: Ledger,
    lanes: Vec<Lane>,
    requests: HashMap<u64, usize>,
    answers: Vec<Answer>,
    until: Option<Duration>,
}

/// Jobs with the same figures share a stage.
type Stage = [u64; 4];

struct Lane {
    held: u64,
    reserved: Option<Reservation>,
    run: Option<(Duration, Run<Stage>)>,
}

impl<'a> Lanes<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        let rules = DeviceRules {
            works: usize::MAX,
            bytes: usize::MAX,
            ..DeviceRules::for_lanes(scenario.lanes)
        };
        let mut device = Device::new(rules);
        (0..scenario.lanes).for_each(|lane| device.started(lane, 0));
        let mut ledger = Ledger::new(Budget {
            bytes: scenario.memory_bytes,
            ..Budget::default()
        });
        let lane = |index| Lane {
            held: 0,
            reserved: ledger.reserve(&format!("lane {index}"), Kind::Lane, 0).ok(),
            run: None,
        };
        Self {
            jobs: &scenario.jobs,
            device,
            lanes: (0..scenario.lanes).map(lane).collect(),
            ledger,
            requests: HashMap::new(),
            answers: Vec::new(),
            until: None,
        }
    }

    fn room(&self) -> LaneMemory {
        LaneMemory {
            free: self.ledger.room(Kind::Lane),
            limit: self.ledger.most(Kind::Lane),
        }
    }

    fn of_stage(&self, stage: &Stage) -> Option<&'a Job> {
        self.jobs.iter().find(|job| stage_of(job) == *stage)
    }

    /// Sets the lane's reservation. Returns true if the ledger has that much memory.
    fn reserve(&mut self, lane: usize, bytes: u64) -> bool {
        let reserved = self.lanes.get_mut(lane).and_then(|lane| lane.reserved.as_mut());
        reserved.is_some_and(|reserved| self.ledger.resize(reserved, bytes).is_ok())
    }

    fn close(&mut self, lane: usize, stages: &[Stage]) -> u64 {
        let sessions = stages.iter().filter_map(|stage| self.of_stage(stage));
        let bytes: u64 = sessions.map(Job::session).sum();
        let held = self.lanes.get_mut(lane).map_or(0, |lane| {
            lane.held = lane.held.saturating_sub(bytes);
            lane.held
        });
        self.reserve(lane, held);
        held
    }

    fn decide(&mut self, now: Duration, figures: &mut Figures) {
        loop {
            match self.device.next(now, self.room()) {
                Decision::Run(run) => self.begin(now, run, figures),
                Decision::Prepare { slot, .. } => self.device.prepared(now, slot, true),
                Decision::Close { lane, stages } => {
                    let held = self.close(lane, &stages);
                    self.device.closed(lane, Some(held));
                }
                Decision::Refuse { work, .. } => self.answer(work, false),
                Decision::Wait { until, .. } => {
                    self.until = until;
                    return;
                }
            }
        }
    }

    fn begin(&mut self, now: Duration, run: Run<Stage>, figures: &mut Figures) {
        let held = self.close(run.lane, &run.close);
        let job = self.of_stage(&run.stage);
        if !self.reserve(run.lane, held.saturating_add(run.bytes)) {
            self.device.ended(now, run.lane, BatchEnd::OutOfBudget);
            return;
        }
        figures.record_memory(self.ledger.held_in_all());
        let session = job.filter(|_| run.cold).map_or(0, Job::session);
        let time = job.map_or(Duration::ZERO, |job| job.time(run.rows));
        if run.cold && session <= run.bytes {
            let held = Some(held.saturating_add(session));
            self.device.opened(
                run.lane,
                Duration::ZERO,
                MemoryUsage {
                    peak: held,
                    held,
                    spare: 0,
                },
            );
        }
        if let Some(lane) = self.lanes.get_mut(run.lane) {
            lane.run = Some((now + time, run));
        }
    }

    fn end(&mut self, now: Duration, figures: &mut Figures) {
        for index in 0..self.lanes.len() {
            let lane = self.lanes.get_mut(index);
            let over = lane.and_then(|lane| lane.run.take_if(|(until, _)| *until <= now));
            let Some((_, run)) = over else { continue };
            let job = self.of_stage(&run.stage);
            let session = job.filter(|_| run.cold).map_or(0, Job::session);
            let took = job.map_or(0, |job| job.bytes(run.rows));
            let time = job.map_or(Duration::ZERO, |job| job.time(run.rows));
            let rows: usize = run.parts.iter().map(|part| part.rows.len()).sum();
            for part in &run.parts {
                if let Some(job) = self.requests.get(&part.work) {
                    figures.ran(*job, time.mul_f64(part.rows.len() as f64 / rows.max(1) as f64));
                }
            }
            let end = self.end_of(index, &run, session, took, time);
            for verdict in self.device.ended(now, index, end) {
                match verdict.outcome {
                    PartOutcome::Done { last: true } => self.answer(verdict.work, true),
                    PartOutcome::Failed | PartOutcome::Refused { .. } => self.answer(verdict.work, false),
                    _ => {}
                }
            }
        }
    }

    fn end_of(
        &mut self,
        index: usize,
        run: &Run<Stage>,
        session: u64,
        took: u64,
        time: Duration,
    ) -> BatchEnd {
        let held = self.lanes.get_mut(index).map_or(0, |lane| {
            lane.held += if session <= run.bytes { session } else { 0 };
            lane.held
        });
        self.reserve(index, held);
        if session.saturating_add(took) > run.bytes {
            return BatchEnd::OutOfMemory { held: Some(held) };
        }
        BatchEnd::Done {
            time,
            taken: MemoryUsage {
                peak: Some(held.saturating_add(took)),
                held: Some(held),
                spare: 0,
            },
        }
    }

    fn answer(&mut self, work: u64, served: bool) {
        if let Some(job) = self.requests.remove(&work) {
            self.answers.push(Answer {
                id: work,
                job,
                served,
            });
        }
    }
}

fn stage_of(job: &Job) -> Stage {
    let lines = [job.seconds, job.memory];
    let [seconds, memory] = lines.map(|line| [line.fixed.to_bits(), line.per_sample.to_bits()]);
    [seconds[0], seconds[1], memory[0], memory[1]]
}

impl SimulatedDevice for Lanes<'_> {
    fn post(&mut self, request: Request) {
        let (Some(job), Some(rows)) = (self.jobs.get(request.job), NonZeroUsize::new(request.samples)) else {
            return;
        };
        self.requests.insert(request.id, request.job);
        let work = Work {
            id: request.id,
            tenant: format!("tenant {}", request.job).into(),
            weight: 1,
            terms: ExecutionTerms::default(),
            stage: stage_of(job),
            rows,
            bytes: 0,
            guess: MemoryEstimate {
                session: job.session(),
                fixed: 0,
                per_row: (job.memory.per_sample / GUESS) as u64,
            },
        };
        if self.device.push(work).is_err() {
            self.answer(request.id, false);
        }
    }

    fn work(&mut self, now: Duration, figures: &mut Figures) -> Vec<Answer> {
        self.end(now, figures);
        self.decide(now, figures);
        std::mem::take(&mut self.answers)
    }

    fn drop_job(&mut self, job: usize) {
        let theirs: Vec<u64> = self
            .requests
            .iter()
            .filter(|(_, of)| **of == job)
            .map(|(id, _)| *id)
            .collect();
        for id in theirs {
            self.requests.remove(&id);
            self.device.remove(id);
        }
    }

    fn next(&self) -> Option<Duration> {
        let runs = self
            .lanes
            .iter()
            .filter_map(|lane| lane.run.as_ref())
            .map(|(until, _)| *until);
        runs.chain(self.until).min()
    }
}
