//! Results of batches.

use super::Device;
use super::decision::{Part, PartOutcome, Verdict};
use super::figures::TENANTS;
use super::lane::{Doing, Running};
use super::needs::Took;
use super::work::{End, Taken};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// Number of lost processes before a work item is refused; the first loss may be a coincidence.
const LOST: u32 = 2;

/// Number of consecutive kills before a work item is refused; further attempts would probably be killed too.
const KILLS: u32 = 5;

impl<S: Clone + Eq + Hash> Device<S> {
    /// Records that a cold batch has opened the session; `taken` covers the time since the batch started.
    pub fn opened(&mut self, lane: usize, taken: Taken) {
        let Some(lane) = self.lanes.get_mut(lane) else {
            return;
        };
        let Doing::Running(running) = &mut lane.doing else {
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
        }
        if let Some(open) = lane.sessions.iter_mut().find(|open| open.stage == running.stage) {
            open.bytes = bytes;
        }
        running.for_run = running.bytes.saturating_sub(bytes);
        running.before = running.before.saturating_add(bytes);
        lane.held = running.before;
    }

    /// True if the batch of a lane that aborted its process may have lacked memory: the reservation was
    /// limited, and no attempt with all free memory was made yet.
    pub fn may_lack(&self, lane: usize) -> bool {
        let running = self.lanes.get(lane).and_then(super::Lane::running);
        running.is_some_and(|running| {
            let mut works = running.parts.iter().filter_map(|part| self.queue.get(part.work));
            let known = self.stages.get(running.stage);
            !running.all
                && known.is_some_and(|known| known.needs.may_abort())
                && works.all(|work| !work.aborted)
        })
    }

    /// Records that the batch of a lane ended at the time `now`. Returns the outcome of each part.
    pub fn ended(&mut self, now: Duration, lane: usize, end: End) -> Vec<Verdict> {
        let Some(running) = self.free(lane, end) else {
            return Vec::new();
        };
        self.charge(&running, now.saturating_sub(running.since));
        self.learn(lane, &running, end, now);
        let alone = running.parts.len() < 2;
        let parts = running.parts.iter();
        let verdicts = parts.map(|part| Verdict {
            work: part.work,
            rows: part.rows.clone(),
            fate: self.fate(part, &running, alone, end),
        });
        verdicts.collect()
    }

    /// Marks the lane as idle, or as absent if the process was lost. Returns the ended batch.
    fn free(&mut self, index: usize, end: End) -> Option<Running> {
        let lane = self.lanes.get_mut(index)?;
        let after = if end.is_lost() {
            Doing::Absent
        } else {
            Doing::Nothing
        };
        if lane.running().is_none() {
            if end.is_lost() {
                lane.doing = after;
                self.lose_sessions(index);
            }
            return None;
        }
        let Doing::Running(running) = std::mem::replace(&mut lane.doing, after) else {
            return None;
        };
        if end.is_lost() {
            lane.held = 0;
            self.lose_sessions(index);
        } else if !running.open && !matches!(end, End::Done { .. }) {
            let held = lane.held;
            self.close_session(index, running.stage);
            self.holds(index, held);
        }
        Some(running)
    }

    fn charge(&mut self, running: &Running, time: Duration) {
        for payer in &running.payers {
            let (guess, time) = (
                running.part_of(payer, running.guess),
                running.part_of(payer, time),
            );
            self.queue.end(&payer.tenant, &payer.line, guess, time);
            if self.used.len() >= TENANTS && !self.used.contains_key(&payer.tenant) {
                let least = self.used.iter().min_by_key(|(_, time)| **time);
                if let Some(least) = least.map(|(tenant, _)| Arc::clone(tenant)) {
                    self.used.remove(&least);
                }
            }
            *self.used.entry(Arc::clone(&payer.tenant)).or_default() += time;
        }
    }

    fn learn(&mut self, lane: usize, running: &Running, end: End, now: Duration) {
        let kept = self
            .lanes
            .get(lane)
            .map_or(0, |lane| lane.cached_bytes(running.stage));
        let Some(known) = self.stages.get_mut(running.stage) else {
            return;
        };
        match end {
            End::Done { time, taken } => {
                if !running.cold || known.rate.per_row(running.rows).is_none() {
                    known.rate.note(running.rows, time);
                }
                match taken.peak {
                    Some(peak) => {
                        let grown = peak.saturating_sub(running.before);
                        // A batch within the retained memory does not raise the peak, so the used bytes are
                        // unknown.
                        let took = Took {
                            least: if grown > 0 { kept + grown } else { 0 },
                            most: kept.saturating_add(grown).saturating_add(taken.spare),
                        };
                        let (reserved, cold) = (kept + running.for_run, running.cold && !self.rules.keeps);
                        let missed = known.needs.note_run(running.rows, took, reserved, cold);
                        self.predictions.note(missed);
                    }
                    None => known.needs.note_unseen(running.rows),
                }
                self.keep(lane, running, taken.held);
            }
            End::OutOfMemory { held } => {
                self.predictions.misses += 1;
                known.needs.note_no_memory(running, kept);
                if running.all {
                    let forget = now + self.rules.quantum * 120;
                    known.needs.note_refused(running.rows, running.bytes, forget);
                }
                if self.rules.keeps {
                    self.close_session(lane, running.stage);
                }
                held.into_iter().for_each(|held| self.holds(lane, held));
            }
            End::Aborted => {
                self.predictions.misses += 1;
                known.needs.note_no_memory(running, kept);
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
            open.kept = open.kept.saturating_add(left);
            open.bytes = open.bytes.saturating_add(left);
        }
        self.holds(index, held);
    }

    fn fate(&mut self, part: &Part, running: &Running, alone: bool, end: End) -> PartOutcome {
        let Some(entry) = self.queue.get_mut(part.work) else {
            return PartOutcome::Dropped;
        };
        entry.running = entry.running.saturating_sub(1);
        match end {
            End::Done { .. } => {
                (entry.killed, entry.aborted) = (0, false);
                let last = entry.running == 0 && entry.left.is_empty();
                if last {
                    self.forget(part.work);
                }
                return PartOutcome::Done { last };
            }
            End::OutOfMemory { .. } => {
                let least = entry.fixed.unwrap_or(1);
                if running.all && (running.rows <= least || !running.open) {
                    self.forget(part.work);
                    return PartOutcome::Refused {
                        needs: running.bytes.saturating_add(1),
                        most: running.bytes,
                    };
                }
            }
            End::Failed | End::Lost | End::Killed | End::Aborted => {
                entry.apart |= !alone;
                entry.aborted = end == End::Aborted;
                entry.lost += u32::from(alone && end == End::Lost);
                entry.killed += u32::from(alone && end == End::Killed);
                if alone && (end == End::Failed || entry.lost >= LOST || entry.killed >= KILLS) {
                    self.forget(part.work);
                    return PartOutcome::Failed;
                }
            }
            End::OutOfBudget | End::Cancelled => {}
        }
        self.wait(running.stage, part.rows.len());
        self.queue.put_back(part.work, part.rows.clone());
        PartOutcome::Again
    }
}
