//! Simulated lanes in virtual time. Only the simulation knows the actual cost of stages; the device has to
//! learn this cost.

use super::super::*;
use frostline_tensor::{ExecutionTerms, Terms};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

pub(super) const MILLI: Duration = Duration::from_millis(1);

/// Actual cost of a stage.
#[derive(Debug, Clone, Copy)]
pub(super) struct Truth {
    pub(super) session: u64,
    pub(super) opening: Duration,
    pub(super) preparing: Duration,
    pub(super) fixed: u64,
    pub(super) per_row: u64,
    /// Bytes per squared number of rows.
    pub(super) squared: u64,
    pub(super) time: Duration,
    pub(super) time_per_row: Duration,
    pub(super) guess: MemoryEstimate,
}

impl Default for Truth {
    fn default() -> Self {
        Self {
            session: 0,
            opening: Duration::ZERO,
            preparing: MILLI * 50,
            fixed: 0,
            per_row: 0,
            squared: 0,
            time: Duration::ZERO,
            time_per_row: MILLI * 10,
            guess: MemoryEstimate::default(),
        }
    }
}

impl Truth {
    fn run(&self, rows: usize) -> u64 {
        let rows = rows as u64;
        self.fixed + self.per_row * rows + self.squared * rows * rows
    }
}

#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) tenant: String,
    pub(super) stage: usize,
    pub(super) terms: ExecutionTerms,
    pub(super) sent: Duration,
    pub(super) begun: Option<Duration>,
    /// Number of executions per row.
    pub(super) done: Vec<u32>,
    pub(super) over: Option<PartOutcome>,
}

struct Ending {
    /// Opening time of the session, if not yet open.
    opens: Option<Duration>,
    at: Duration,
    end: BatchEnd,
    peak: u64,
}

impl Ending {
    fn next(&self) -> Duration {
        self.opens.unwrap_or(self.at)
    }
}

pub(super) struct World {
    pub(super) device: Device<usize>,
    pub(super) now: Duration,
    pub(super) budget: u64,
    pub(super) truths: Vec<Truth>,
    pub(super) works: BTreeMap<u64, Sent>,
    pub(super) used: BTreeMap<String, Duration>,
    pub(super) runs: Vec<Run<usize>>,
    /// Start times of batches with their tenants.
    pub(super) begun: Vec<(Duration, String)>,
    pub(super) opened: usize,
    /// Work items whose rows fail or end the process.
    pub(super) poison: BTreeMap<u64, BatchEnd>,
    /// True if lanes report memory usage.
    pub(super) sees: bool,
    /// Bytes of the budget in use outside the lanes.
    pub(super) others: u64,
    endings: BTreeMap<usize, Ending>,
    /// Per slot, the end and the start of the preparation, and the tenant.
    preparing: BTreeMap<usize, (Duration, Duration, String)>,
    /// Per lane, the bytes held and the additional bytes reserved.
    held: Vec<(u64, u64)>,
    /// Per lane, the open sessions and the bytes retained from earlier batches.
    sessions: Vec<BTreeMap<usize, u64>>,
    /// True if sessions retain the memory of batches.
    keeps: bool,
    seen: BTreeMap<usize, (Duration, Run<usize>)>,
}

impl World {
    pub(super) fn new(rules: DeviceRules, budget: u64, truths: Vec<Truth>) -> Self {
        let mut device = Device::new(rules);
        (0..rules.lanes).for_each(|lane| device.started(lane, 0));
        Self {
            device,
            now: Duration::ZERO,
            budget,
            truths,
            works: BTreeMap::new(),
            used: BTreeMap::new(),
            runs: Vec::new(),
            begun: Vec::new(),
            opened: 0,
            poison: BTreeMap::new(),
            sees: true,
            others: 0,
            endings: BTreeMap::new(),
            preparing: BTreeMap::new(),
            held: vec![(0, 0); rules.lanes],
            sessions: vec![BTreeMap::new(); rules.lanes],
            keeps: rules.keeps,
            seen: BTreeMap::new(),
        }
    }

    /// Sends a work item. `who` is a tenant, optionally followed by a slash and a job.
    pub(super) fn send(&mut self, who: &str, weight: u32, stage: usize, rows: usize, terms: Terms) -> u64 {
        let id = self.works.len() as u64;
        let (tenant, job) = who.split_once('/').unwrap_or((who, who));
        let terms = ExecutionTerms {
            extraction: "".into(),
            job: job.into(),
            terms,
        };
        let work = Work {
            id,
            tenant: tenant.into(),
            weight,
            terms: terms.clone(),
            stage,
            rows: NonZeroUsize::new(rows).unwrap(),
            bytes: 1,
            guess: self.truths[stage].guess,
        };
        self.device.push(work).unwrap();
        let sent = Sent {
            tenant: tenant.to_owned(),
            stage,
            terms,
            sent: self.now,
            begun: None,
            done: vec![0; rows],
            over: None,
        };
        self.works.insert(id, sent);
        id
    }

    pub(super) fn room(&self) -> LaneMemory {
        let lanes: u64 = self.held.iter().map(|(held, reserved)| held + reserved).sum();
        let taken = lanes + self.others;
        assert!(
            taken <= self.budget,
            "{taken} of {}: {:?}",
            self.budget,
            self.held
        );
        LaneMemory {
            free: self.budget - taken,
            limit: self.budget,
        }
    }

    /// Executes decisions until the device waits.
    pub(super) fn decide(&mut self) {
        let mut decisions = 0;
        loop {
            decisions += 1;
            assert!(decisions < 10_000, "the device never returned Wait");
            match self.device.next(self.now, self.room()) {
                Decision::Run(run) => self.begin(run),
                Decision::Prepare { slot, stage, tenant } => {
                    let ends = self.now + self.truths[stage].preparing;
                    let preparing = (ends, self.now, tenant.to_string());
                    assert_eq!(self.preparing.insert(slot, preparing), None);
                }
                Decision::Close { lane, stages } => {
                    self.close(lane, &stages);
                    self.device.closed(lane, Some(self.held[lane].0));
                }
                Decision::Refuse { work, needs, most } => {
                    assert!(needs > most);
                    self.works.get_mut(&work).unwrap().over = Some(PartOutcome::Refused { needs, most });
                }
                Decision::Wait { until, .. } => {
                    assert!(until.is_none_or(|until| until > self.now));
                    break;
                }
            }
        }
    }

    /// Returns the size of a session on `lane`. Sessions differ between lanes, because later ones share data
    /// that the first one prepared.
    fn session(&self, lane: usize, stage: usize) -> u64 {
        let session = self.truths[stage].session;
        session - (session / 8 * lane as u64).min(session / 2)
    }

    /// Returns the lanes with a session of `stage`.
    pub(super) fn lanes_of(&self, stage: usize) -> Vec<usize> {
        let lanes = self.sessions.iter().enumerate();
        let with = lanes.filter(|(_, sessions)| sessions.contains_key(&stage));
        with.map(|(lane, _)| lane).collect()
    }

    /// Closes all sessions that no work waits for.
    pub(super) fn close_all(&mut self) {
        for (lane, stages) in self.device.retain(|_| false) {
            self.close(lane, &stages);
            self.device.closed(lane, Some(self.held[lane].0));
        }
    }

    fn close(&mut self, lane: usize, stages: &[usize]) {
        assert!(
            !self.endings.contains_key(&lane),
            "closed a session on a busy lane"
        );
        stages.iter().for_each(|stage| self.close_in(lane, *stage));
    }

    fn close_in(&mut self, lane: usize, stage: usize) {
        let kept = self.sessions[lane]
            .remove(&stage)
            .expect("closed a missing session");
        self.held[lane].0 -= self.session(lane, stage) + kept;
    }

    fn begin(&mut self, run: Run<usize>) {
        assert!(
            !self.endings.contains_key(&run.lane),
            "a lane runs one batch at a time"
        );
        self.close(run.lane, &run.close);
        assert_eq!(run.cold, !self.sessions[run.lane].contains_key(&run.stage));
        self.held[run.lane].1 = run.bytes;
        self.room();
        for part in &run.parts {
            let work = self.works.get_mut(&part.work).unwrap();
            work.begun.get_or_insert(self.now);
            assert_eq!(work.stage, run.stage);
        }
        self.begun
            .push((self.now, self.works[&run.parts[0].work].tenant.clone()));
        let truth = self.truths[run.stage];
        let opening = if run.cold { truth.opening } else { Duration::ZERO };
        let session = if run.cold {
            self.session(run.lane, run.stage)
        } else {
            0
        };
        let kept = self.sessions[run.lane].get(&run.stage).copied().unwrap_or(0);
        let took = session + truth.run(run.rows).saturating_sub(kept);
        let time = truth.time + truth.time_per_row * u32::try_from(run.rows).unwrap();
        let poison = run.parts.iter().find_map(|part| self.poison.get(&part.work));
        let end = match poison {
            _ if took > run.bytes => BatchEnd::OutOfMemory { held: None },
            Some(end) => *end,
            None => BatchEnd::Done {
                time,
                taken: MemoryUsage::default(),
            },
        };
        let ending = Ending {
            opens: (run.cold && session <= run.bytes).then_some(self.now + opening),
            at: self.now + opening + time,
            end,
            peak: self.held[run.lane].0 + took,
        };
        self.endings.insert(run.lane, ending);
        self.seen.insert(run.lane, (self.now, run.clone()));
        if opening.is_zero() {
            self.open(run.lane);
        }
        self.runs.push(run);
    }

    /// Opens the session for the batch on `lane`, if due.
    fn open(&mut self, lane: usize) {
        let opens = self.endings.get_mut(&lane).and_then(|ending| ending.opens.take());
        if opens.is_none() {
            return;
        }
        let stage = self.seen[&lane].1.stage;
        let session = self.session(lane, stage);
        self.opened += 1;
        self.sessions[lane].insert(stage, 0);
        self.held[lane].0 += session;
        self.held[lane].1 -= session;
        let held = Some(self.held[lane].0).filter(|_| self.sees);
        let taken = MemoryUsage {
            peak: held,
            held,
            spare: 0,
        };
        let time = self.now - self.seen[&lane].0;
        self.device.opened(lane, time, taken);
    }

    /// Advances to the next end of a batch or opening of a session. Returns false if no batch is in flight.
    pub(super) fn step(&mut self) -> bool {
        self.decide();
        let first = self.preparing.iter().min_by_key(|(_, (ends, ..))| *ends);
        let first = first.map(|(slot, (ends, ..))| (*slot, *ends));
        if let Some((slot, ends)) = first.filter(|(_, ends)| self.next_run().is_none_or(|run| *ends <= run)) {
            self.now = self.now.max(ends);
            self.prepared(slot);
            return true;
        }
        let next = |(lane, ending): (&usize, &Ending)| (*lane, ending.opens.is_some(), ending.next());
        let Some((lane, opens, at)) = self.endings.iter().map(next).min_by_key(|(_, _, at)| *at) else {
            return false;
        };
        self.now = self.now.max(at);
        match opens {
            true => self.open(lane),
            false => self.end(lane),
        }
        true
    }

    /// Returns the time at which the next batch or preparation ends or the next session opens.
    pub(super) fn next_end(&self) -> Option<Duration> {
        let preparing = self.preparing.values().map(|(ends, ..)| *ends);
        preparing.chain(self.next_run()).min()
    }

    fn next_run(&self) -> Option<Duration> {
        self.endings.values().map(Ending::next).min()
    }

    fn prepared(&mut self, slot: usize) {
        let (_, since, tenant) = self.preparing.remove(&slot).unwrap();
        *self.used.entry(tenant).or_default() += self.now - since;
        self.device.prepared(self.now, slot, true);
    }

    fn end(&mut self, lane: usize) {
        let ending = self.endings.remove(&lane).unwrap();
        let (since, run) = self.seen.remove(&lane).unwrap();
        self.held[lane].1 = 0;
        if let (true, BatchEnd::OutOfMemory { .. }, true) = (
            self.keeps,
            ending.end,
            self.sessions[lane].contains_key(&run.stage),
        ) {
            self.close_in(lane, run.stage);
        }
        if let (true, BatchEnd::Done { .. }) = (self.keeps, ending.end) {
            let left = ending.peak.saturating_sub(self.held[lane].0);
            self.held[lane].0 += left;
            *self.sessions[lane].get_mut(&run.stage).unwrap() += left;
        }
        let held = Some(self.held[lane].0);
        let peak = Some(ending.peak);
        let held = held.filter(|_| self.sees);
        let peak = peak.filter(|_| self.sees);
        let end = match ending.end {
            BatchEnd::Done { time, .. } => BatchEnd::Done {
                time,
                taken: MemoryUsage { peak, held, spare: 0 },
            },
            BatchEnd::OutOfMemory { .. } => BatchEnd::OutOfMemory { held },
            end => end,
        };
        let rows: usize = run.parts.iter().map(|part| part.rows.len()).sum();
        for part in &run.parts {
            let tenant = self.works[&part.work].tenant.clone();
            let time = (self.now - since).mul_f64(part.rows.len() as f64 / rows as f64);
            *self.used.entry(tenant).or_default() += time;
        }
        for verdict in self.device.ended(self.now, lane, end) {
            self.note(verdict);
        }
        if end.is_lost() {
            self.sessions[lane].clear();
            self.held[lane] = (0, 0);
            self.device.started(lane, 0);
        }
    }

    fn note(&mut self, verdict: Verdict) {
        let work = self.works.get_mut(&verdict.work).unwrap();
        match verdict.outcome {
            PartOutcome::Done { last } => {
                verdict.rows.for_each(|row| work.done[row] += 1);
                if last {
                    work.over = Some(verdict.outcome);
                }
            }
            PartOutcome::Failed | PartOutcome::Refused { .. } => work.over = Some(verdict.outcome),
            PartOutcome::Again | PartOutcome::Dropped => {}
        }
    }

    /// Executes all work items.
    pub(super) fn finish(&mut self) {
        let steps = (0..20_000).take_while(|_| self.step()).count();
        assert!(steps < 20_000, "the simulation never ends");
        assert!(self.device.is_empty(), "works are left: {:?}", self.works);
        assert!(self.device.stages.iter().all(|stage| stage.waiting == 0));
    }

    pub(super) fn assert_all_done_once(&self) {
        for (id, work) in &self.works {
            assert_eq!(
                work.over,
                Some(PartOutcome::Done { last: true }),
                "{id}: {work:?}"
            );
            assert!(work.done.iter().all(|times| *times == 1), "{id}: {work:?}");
        }
    }
}
