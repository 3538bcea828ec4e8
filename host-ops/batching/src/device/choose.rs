//! Selection of the next work item.

use super::Device;
use super::decision::{Decision, Part, Run};
use super::in_flight::{Payer, Running};
use super::lane::{LaneActivity, OpenSession};
use super::place::{BatchPlacement, Closable, EvictionLevel, PlacementInputs, PlacementResult};
use super::stages::StageId;
use super::work::{LaneMemory, TIME_SLICE};
use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;
use std::time::Duration;

impl<S: Clone + Eq + Hash> Device<S> {
    /// Returns the next step at the time `now`, with the memory `room`. Must be repeated until the result is
    /// [`Decision::Wait`].
    pub fn next(&mut self, now: Duration, room: LaneMemory) -> Decision<S> {
        if let Some(prepare) = self.next_preparation(now) {
            return prepare;
        }
        if self.idle() == 0 {
            return Decision::Wait {
                until: None,
                lacking: 0,
            };
        }
        let mut view = PlacementInputs {
            now,
            room,
            limit: u64::MAX,
        };
        let (mut found, kept) = self.find_overdue(view);
        if let PlacementResult::Blocked(lacking) = found {
            view.limit = kept;
            found = match self.find_runnable(&mut view, EvictionLevel::EvictUnused) {
                PlacementResult::Blocked(_) => self.find_runnable(&mut view, EvictionLevel::EvictAny),
                found => found,
            };
            if let PlacementResult::Blocked(less) = &mut found {
                *less = lacking.max(*less);
            }
        }
        self.decide(now, found)
    }

    fn decide(&mut self, now: Duration, found: PlacementResult) -> Decision<S> {
        let chosen = match &found {
            PlacementResult::Ready(place) => place.parts.first().map(|(work, _)| *work),
            PlacementResult::TooLarge { work, .. } => Some(*work),
            PlacementResult::AfterClosing(_) | PlacementResult::Blocked(_) => None,
        };
        let first = self.queue.iter().next().map(|(id, _)| id);
        if let Some(first) = first.filter(|first| chosen != Some(*first)) {
            self.queue.pass(first, now);
        }
        match found {
            PlacementResult::Ready(place) => self.act(now, place),
            PlacementResult::TooLarge { work, needs, most } => {
                self.forget(work);
                Decision::Refuse { work, needs, most }
            }
            PlacementResult::AfterClosing(lacking) | PlacementResult::Blocked(lacking) => {
                let due = self
                    .queue
                    .passed(Duration::MAX)
                    .map(|(since, _)| since + TIME_SLICE);
                Decision::Wait {
                    until: due.chain(self.long_work_due()).filter(|due| *due > now).min(),
                    lacking,
                }
            }
        }
    }

    /// Searches the overdue work items, which were overtaken for a time slice and precede the rest of the
    /// queue. Also returns the maximum reservation of other work, because memory is set aside for overdue
    /// items.
    fn find_overdue(&self, view: PlacementInputs) -> (PlacementResult, u64) {
        let mut lacking = 0;
        let mut kept = 0;
        let mut limit = u64::MAX;
        let mut seen = HashSet::new();
        let before = view.now.checked_sub(TIME_SLICE);
        for (since, id) in before.into_iter().flat_map(|before| self.queue.passed(before)) {
            let Some(entry) = self
                .queue
                .get(id)
                .filter(|entry| seen.insert((entry.stage, entry.fixed)))
            else {
                continue;
            };
            match self.fit(id, entry, view, EvictionLevel::Unrestricted) {
                PlacementResult::AfterClosing(bytes) => limit = limit.min(self.remaining_bytes(view, bytes)),
                PlacementResult::Blocked(0) => {}
                PlacementResult::Blocked(bytes) => {
                    lacking = lacking.max(bytes);
                    kept = kept.max(self.least(entry.stage, entry.fixed));
                    limit = limit.min(self.bytes_for_others(view.room, kept, since + TIME_SLICE));
                }
                found => return (found, limit),
            }
        }
        (PlacementResult::Blocked(lacking), limit)
    }

    /// Returns the first work item that can start under `price`.
    fn find_runnable(&self, view: &mut PlacementInputs, price: EvictionLevel) -> PlacementResult {
        let mut lacking = None;
        let mut seen = HashSet::new();
        for (id, entry) in self.queue.iter() {
            if !seen.insert((entry.stage, entry.fixed)) {
                continue;
            }
            match self.fit(id, entry, *view, price) {
                PlacementResult::AfterClosing(bytes) => {
                    view.limit = view.limit.min(self.remaining_bytes(*view, bytes))
                }
                PlacementResult::Blocked(bytes) => {
                    lacking.get_or_insert(bytes);
                }
                found => return found,
            }
        }
        PlacementResult::Blocked(lacking.unwrap_or(0))
    }

    /// Returns the free and soon free bytes that remain next to a work item that waits for `bytes` of them.
    fn remaining_bytes(&self, view: PlacementInputs, bytes: u64) -> u64 {
        view.room
            .free
            .saturating_add(self.closing_bytes())
            .saturating_sub(bytes)
    }

    /// Returns the bytes required for the smallest batch of a stage. Assumes an open session if any lane has
    /// one.
    fn least(&self, stage: StageId, fixed: Option<usize>) -> u64 {
        let rows = fixed.unwrap_or(1);
        self.stages
            .get(stage)
            .map_or(0, |known| match known.lanes.is_empty() {
                true => known.needs.cold_run(rows),
                false => known.needs.run(rows),
            })
    }

    /// Returns the bytes that other work may use while `kept` bytes are set aside for overdue work: the
    /// lanes' memory without them and without the reservations of batches that started at or after `since`.
    fn bytes_for_others(&self, room: LaneMemory, kept: u64, since: Duration) -> u64 {
        let running = self.lanes.iter().filter_map(super::Lane::running);
        let sessions = self
            .lanes
            .iter()
            .flat_map(|lane| &lane.sessions)
            .map(|open| open.bytes);
        let all = running.clone().map(|running| running.for_run).chain(sessions);
        let all = all.fold(
            room.free.saturating_add(self.closing_bytes()),
            u64::saturating_add,
        );
        let later = running
            .filter(|running| running.since >= since)
            .map(|running| running.bytes);
        later.fold(all.saturating_sub(kept), u64::saturating_sub)
    }

    fn act(&mut self, now: Duration, place: BatchPlacement) -> Decision<S> {
        let mut lanes = place.close.iter().map(|(lane, _)| *lane);
        if let Some(lane) = lanes.find(|lane| *lane != place.lane) {
            let stages = place.close.iter().filter(|(other, _)| *other == lane);
            let stages: Vec<StageId> = stages.map(|(_, stage)| *stage).collect();
            let stages = self.begin_to_close(lane, &stages);
            return Decision::Close { lane, stages };
        }
        let own: Vec<StageId> = place.close.iter().map(|(_, stage)| *stage).collect();
        let close = self.close_sessions(place.lane, &own);
        self.run(now, place, close).unwrap_or(Decision::Wait {
            until: None,
            lacking: 0,
        })
    }

    /// Frees up to `bytes` for others. Returns, per lane, the idle sessions to close; no work waits for them.
    /// [`Device::closed`] must follow for each lane.
    pub fn relieve(&mut self, bytes: u64) -> Vec<(usize, Vec<S>)> {
        let mut lacking = bytes.saturating_sub(self.closing_bytes());
        self.close_unused(|open, _| {
            let closes = lacking > 0;
            lacking = lacking.saturating_sub(open.bytes);
            closes
        })
    }

    /// Closes the sessions of idle lanes whose stages have no waiting work and for which `keep` returns false.
    /// Returns the same as [`relieve`](Self::relieve).
    pub fn retain(&mut self, keep: impl Fn(&S) -> bool) -> Vec<(usize, Vec<S>)> {
        self.close_unused(|_, stage| !keep(stage))
    }

    /// Closes the sessions of idle lanes whose stages have no waiting work and for which `closes` returns true, in
    /// order of their last use.
    fn close_unused(&mut self, mut closes: impl FnMut(&Closable, &S) -> bool) -> Vec<(usize, Vec<S>)> {
        let mut close: BTreeMap<usize, Vec<StageId>> = BTreeMap::new();
        for open in self.closable(None) {
            let known = self.stages.get(open.stage);
            if !open.has_waiting_work && known.is_some_and(|known| closes(&open, &known.stage)) {
                close.entry(open.lane).or_default().push(open.stage);
            }
        }
        let close = close.into_iter();
        close
            .map(|(lane, stages)| (lane, self.begin_to_close(lane, &stages)))
            .collect()
    }

    fn begin_to_close(&mut self, lane: usize, stages: &[StageId]) -> Vec<S> {
        let held = self.lanes.get(lane).map_or(0, |lane| lane.held);
        let closed = self.close_sessions(lane, stages);
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.doing = LaneActivity::Closing(held.saturating_sub(lane.held));
        }
        closed
    }

    fn close_sessions(&mut self, lane: usize, stages: &[StageId]) -> Vec<S> {
        let closed = stages.iter().filter_map(|stage| {
            self.close_session(lane, *stage);
            Some(self.stages.get(*stage)?.stage.clone())
        });
        closed.collect()
    }

    fn run(&mut self, now: Duration, place: BatchPlacement, close: Vec<S>) -> Option<Decision<S>> {
        let (first, _) = place.parts.first()?;
        let id = self.queue.get(*first)?.stage;
        let known = self.stages.get(id)?;
        let stage = known.stage.clone();
        let guess = known.rate.time(place.rows);
        let (parts, payers) = self.take_parts(&place);
        self.unwait(id, parts.iter().map(|part| part.rows.len()).sum());
        let running = Running {
            stage: id,
            rows: place.rows,
            bytes: place.bytes,
            for_run: place.for_run,
            uses_all_memory: place.uses_all_memory,
            before: self.lanes.get(place.lane).map_or(0, |lane| lane.held),
            cold: place.cold,
            open: !place.cold,
            since: now,
            guess,
            short_for: place.short_for,
            parts: parts.clone(),
            payers,
        };
        self.charge_guess(&running.payers, running.guess);
        self.occupy(place.lane, running, now);
        Some(Decision::Run(Run {
            lane: place.lane,
            stage,
            cold: place.cold,
            close,
            parts,
            rows: place.rows,
            bytes: place.bytes,
        }))
    }

    /// Removes the rows of a batch from the queue. Returns the parts and the paying tenants.
    fn take_parts(&mut self, place: &BatchPlacement) -> (Vec<Part>, Vec<Payer>) {
        let mut left = place.rows;
        let (mut parts, mut payers): (Vec<Part>, Vec<Payer>) = Default::default();
        for (id, rows) in &place.parts {
            if left == 0 {
                break;
            }
            let Some(part) = self.queue.take_part(*id, left.min(*rows)) else {
                break;
            };
            left -= part.rows.len();
            payers.extend(self.queue.get(*id).map(|entry| Payer {
                tenant: entry.tenant.clone(),
                line: entry.line.clone(),
                rows: part.rows.len(),
            }));
            parts.push(part);
        }
        (parts, payers)
    }

    fn occupy(&mut self, index: usize, running: Running, now: Duration) {
        let Some(known) = self.stages.get_mut(running.stage) else {
            return;
        };
        let Some(lane) = self.lanes.get_mut(index) else {
            return;
        };
        match lane.sessions.iter_mut().find(|open| open.stage == running.stage) {
            Some(open) => open.last_use = now,
            None => {
                lane.sessions.push(OpenSession {
                    stage: running.stage,
                    bytes: known.needs.session(),
                    retained_bytes: 0,
                    last_use: now,
                });
                known.lanes.push(index);
            }
        }
        lane.doing = LaneActivity::Running(running);
    }
}
