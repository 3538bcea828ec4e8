//! Results of batches.

use super::Device;
use super::decision::{Part, PartOutcome, Verdict};
use super::in_flight::{Payer, Running};
use super::lane::LaneActivity;
use super::needs::{MeasuredBytes, Needs};
use super::recent::TENANTS;
use super::work::{BatchEnd, MemoryUsage, TIME_SLICE};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// Number of lost processes at which a work item fails. The first loss can be a coincidence.
const LOST: u32 = 2;

/// Number of consecutive kills at which a work item fails. Further attempts would probably be killed as well.
const KILLS: u32 = 5;

impl<S: Clone + Eq + Hash> Device<S> {
    /// Records a session opened by a cold batch in `time`. `taken` covers the time since the start of the
    /// batch.
    pub fn opened(&mut self, lane: usize, time: Duration, taken: MemoryUsage) {
        let Some(lane) = self.lanes.get_mut(lane) else {
            return;
        };
        let LaneActivity::Running(running) = &mut lane.doing else {
            return;
        };
        running.open = true;
        let known = self.stages.get_mut(running.stage);
        let session = taken.held.map(|held| held.saturating_sub(running.before));
        let opening = taken.peak.map(|peak| peak.saturating_sub(running.before));
        let bytes = session
            .or(known.as_ref().map(|known| known.needs.session()))
            .unwrap_or(0);
        if let Some(known) = known {
            known.needs.note_session(opening, session);
            known.opening = Some(known.opening.map_or(time, |shortest| shortest.min(time)));
        }
        if let Some(open) = lane.sessions.iter_mut().find(|open| open.stage == running.stage) {
            open.bytes = bytes;
        }
        running.for_run = running.bytes.saturating_sub(bytes);
        running.before = running.before.saturating_add(bytes);
        lane.held = running.before;
    }

    /// True if an abort of the lane's process can be caused by insufficient memory: the reservation is
    /// limited, the work items have not been tried with all free memory, and the stage has not exceeded the
    /// maximum number of such aborts.
    pub fn may_lack(&self, lane: usize) -> bool {
        let running = self.lanes.get(lane).and_then(super::Lane::running);
        running.is_some_and(|running| {
            let mut works = running.parts.iter().filter_map(|part| self.queue.get(part.work));
            let known = self.stages.get(running.stage);
            !running.uses_all_memory
                && known.is_some_and(|known| known.needs.may_abort())
                && works.all(|work| !work.aborted)
        })
    }

    /// Records that a lane's batch ended at `now`. Returns the outcome of each part.
    pub fn ended(&mut self, now: Duration, lane: usize, end: BatchEnd) -> Vec<Verdict> {
        let Some(running) = self.free(now, lane, end) else {
            return Vec::new();
        };
        self.charge(&running.payers, running.guess, running.since, now);
        for payer in &running.payers {
            self.note_activity(&payer.tenant, now, Some(now.saturating_sub(running.since)));
        }
        self.learn(lane, &running, end, now);
        let alone = running.parts.len() < 2;
        let parts = running.parts.iter();
        let verdicts = parts.map(|part| Verdict {
            work: part.work,
            rows: part.rows.clone(),
            outcome: self.fate(part, &running, alone, end),
        });
        verdicts.collect()
    }

    /// Marks the lane as idle, or as absent if the process was lost. Returns the ended batch.
    fn free(&mut self, now: Duration, index: usize, end: BatchEnd) -> Option<Running> {
        let lane = self.lanes.get_mut(index)?;
        let after = if end.is_lost() {
            LaneActivity::Absent
        } else {
            LaneActivity::Idle
        };
        lane.lost_at = end.is_lost().then_some(now);
        if lane.running().is_none() {
            if end.is_lost() {
                lane.doing = after;
                self.lose_sessions(index);
            }
            return None;
        }
        let LaneActivity::Running(running) = std::mem::replace(&mut lane.doing, after) else {
            return None;
        };
        if end.is_lost() {
            lane.held = 0;
            self.lose_sessions(index);
        } else if !running.open && !matches!(end, BatchEnd::Done { .. }) {
            let held = lane.held;
            self.close_session(index, running.stage);
            self.holds(index, held);
        }
        Some(running)
    }

    /// Charges the time from `since` to `now`, of which `guess` was charged in advance, to the payers in
    /// proportion to their rows. Padding is divided in the same way.
    pub(super) fn charge(&mut self, payers: &[Payer], guess: Duration, since: Duration, now: Duration) {
        let rows: usize = payers.iter().map(|payer| payer.rows).sum();
        for payer in payers {
            let part = payer.rows as f64 / rows.max(1) as f64;
            let time = now.saturating_sub(since).mul_f64(part);
            self.queue
                .end(&payer.tenant, &payer.line, guess.mul_f64(part), time);
            if self.device_time.len() >= TENANTS && !self.device_time.contains_key(&payer.tenant) {
                let least = self.device_time.iter().min_by_key(|(_, time)| **time);
                if let Some(least) = least.map(|(tenant, _)| Arc::clone(tenant)) {
                    self.device_time.remove(&least);
                }
            }
            *self.device_time.entry(Arc::clone(&payer.tenant)).or_default() += time;
        }
    }

    /// Charges the expected duration `guess` in advance.
    pub(super) fn charge_guess(&mut self, payers: &[Payer], guess: Duration) {
        let rows: usize = payers.iter().map(|payer| payer.rows).sum();
        for payer in payers {
            let part = payer.rows as f64 / rows.max(1) as f64;
            self.queue
                .start_run(&payer.tenant, &payer.line, guess.mul_f64(part));
        }
    }

    fn learn(&mut self, lane: usize, running: &Running, end: BatchEnd, now: Duration) {
        let kept = self
            .lanes
            .get(lane)
            .map_or(0, |lane| lane.cached_bytes(running.stage));
        let Some(known) = self.stages.get_mut(running.stage) else {
            return;
        };
        match end {
            BatchEnd::Done { time, taken } => {
                if !running.cold || known.rate.per_row(running.rows).is_none() {
                    known.rate.note(running.rows, time);
                }
                let per_row = time.div_f64(running.rows.max(1) as f64);
                for payer in &running.payers {
                    let time = per_row.mul_f64(payer.rows as f64);
                    let Some(own) = self.own_rates.rate_mut(&payer.tenant, &known.stage) else {
                        continue;
                    };
                    if !running.cold || own.per_row(payer.rows).is_none() {
                        own.note(payer.rows, time);
                    }
                }
                match taken.peak {
                    Some(peak) => {
                        let grown = peak.saturating_sub(running.before);
                        // A batch within the retained memory does not raise the peak, so the used bytes are
                        // unknown.
                        let took = MeasuredBytes {
                            lower: if grown > 0 { kept + grown } else { 0 },
                            upper: kept.saturating_add(grown).saturating_add(taken.spare),
                        };
                        let reserved = kept + running.for_run;
                        let cold = running.cold && !self.rules.keeps;
                        let missed = known.needs.note_run(running.rows, took, reserved, cold);
                        self.predictions.note(missed);
                    }
                    None => known.needs.note_unseen(running.rows),
                }
                self.keep(lane, running, taken.held);
            }
            BatchEnd::OutOfMemory { held } => {
                self.predictions.misses += 1;
                note_no_memory(&mut known.needs, running, kept);
                if running.uses_all_memory {
                    let forget = now + TIME_SLICE * 120;
                    known.needs.note_refused(running.rows, running.bytes, forget);
                }
                if self.rules.keeps {
                    self.close_session(lane, running.stage);
                }
                held.into_iter().for_each(|held| self.holds(lane, held));
            }
            BatchEnd::Aborted => {
                self.predictions.misses += 1;
                note_no_memory(&mut known.needs, running, kept);
                known.needs.note_abort();
            }
            _ => {}
        }
    }

    /// Records the bytes that a lane holds after a batch, if known, and those that the session retained.
    fn keep(&mut self, index: usize, running: &Running, held: Option<u64>) {
        let Some(held) = held else { return };
        if let Some(lane) = self.lanes.get_mut(index).filter(|_| self.rules.keeps)
            && let Some(open) = lane.sessions.iter_mut().find(|open| open.stage == running.stage)
        {
            let left = held.saturating_sub(running.before);
            open.retained_bytes = open.retained_bytes.saturating_add(left);
            open.bytes = open.bytes.saturating_add(left);
        }
        self.holds(index, held);
    }

    fn fate(&mut self, part: &Part, running: &Running, alone: bool, end: BatchEnd) -> PartOutcome {
        let Some(entry) = self.queue.get_mut(part.work) else {
            return PartOutcome::Dropped;
        };
        entry.running = entry.running.saturating_sub(1);
        match end {
            BatchEnd::Done { .. } => {
                (entry.killed, entry.aborted) = (0, false);
                let last = entry.running == 0 && entry.left.is_empty();
                if last {
                    self.forget(part.work);
                }
                return PartOutcome::Done { last };
            }
            BatchEnd::OutOfMemory { .. } => {
                let least = entry.fixed.unwrap_or(1);
                if running.uses_all_memory && (running.rows <= least || !running.open) {
                    self.forget(part.work);
                    return PartOutcome::Refused {
                        needs: running.bytes.saturating_add(1),
                        most: running.bytes,
                    };
                }
            }
            BatchEnd::Failed | BatchEnd::Lost | BatchEnd::Killed | BatchEnd::Aborted => {
                entry.apart |= !alone;
                entry.aborted = end == BatchEnd::Aborted;
                entry.lost += u32::from(alone && end == BatchEnd::Lost);
                entry.killed += u32::from(alone && end == BatchEnd::Killed);
                if alone && (end == BatchEnd::Failed || entry.lost >= LOST || entry.killed >= KILLS) {
                    self.forget(part.work);
                    return PartOutcome::Failed;
                }
            }
            BatchEnd::OutOfBudget | BatchEnd::Cancelled => {}
        }
        self.wait(running.stage, part.rows.len());
        self.queue.put_back(part.work, part.rows.clone());
        PartOutcome::Again
    }
}

/// Records that memory was insufficient for this batch, which also had `kept` bytes from earlier batches, or for
/// opening the session.
fn note_no_memory(needs: &mut Needs, running: &Running, kept: u64) {
    match running.open {
        true => needs.note_lacked(running.rows, running.for_run.saturating_add(kept)),
        false => needs.note_session(Some(running.bytes.saturating_mul(2)), None),
    }
}
