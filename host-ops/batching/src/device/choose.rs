//! Selection of the next work item.

use super::Device;
use super::decision::{Decision, Part, Run};
use super::in_flight::{Payer, Running};
use super::lane::{LaneActivity, OpenSession};
use super::place::{BatchPlacement, EvictionLevel, PlacementInputs, PlacementResult};
use super::stages::StageId;
use super::work::LaneMemory;
use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;
use std::time::Duration;

/// Result of a search through the waiting work items.
enum SearchResult {
    Ready(BatchPlacement),
    TooLarge {
        work: u64,
        needs: u64,
        most: u64,
    },
    /// No work item can start. Holds the bytes missing for the first one.
    Blocked(u64),
}

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
        if let SearchResult::Blocked(lacking) = found {
            view.limit = kept;
            found = match self.find_runnable(&mut view, EvictionLevel::EvictUnused) {
                SearchResult::Blocked(_) => self.find_runnable(&mut view, EvictionLevel::EvictAny),
                found => found,
            };
            if let SearchResult::Blocked(less) = &mut found {
                *less = lacking.max(*less);
            }
        }
        self.decide(now, found)
    }

    fn decide(&mut self, now: Duration, found: SearchResult) -> Decision<S> {
        let chosen = match &found {
            SearchResult::Ready(place) => place.parts.first().map(|(work, _)| *work),
            SearchResult::TooLarge { work, .. } => Some(*work),
            SearchResult::Blocked(_) => None,
        };
        let first = self.queue.iter().next().map(|(id, _)| id);
        if let Some(first) = first.filter(|first| chosen != Some(*first)) {
            self.queue.pass(first, now);
        }
        match found {
            SearchResult::Ready(place) => self.act(now, place),
            SearchResult::TooLarge { work, needs, most } => {
                self.forget(work);
                Decision::Refuse { work, needs, most }
            }
            SearchResult::Blocked(lacking) => {
                let due = self
                    .queue
                    .passed(Duration::MAX)
                    .map(|(since, _)| since + self.rules.time_slice);
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
    fn find_overdue(&self, view: PlacementInputs) -> (SearchResult, u64) {
        let mut lacking = 0;
        let mut kept = 0;
        let mut limit = u64::MAX;
        let mut seen = HashSet::new();
        let before = view.now.checked_sub(self.rules.time_slice);
        for (since, id) in before.into_iter().flat_map(|before| self.queue.passed(before)) {
            let Some(entry) = self
                .queue
                .get(id)
                .filter(|entry| seen.insert((entry.stage, entry.fixed)))
            else {
                continue;
            };
            match self.fit(id, entry, view, EvictionLevel::Unrestricted) {
                PlacementResult::Ready(place) => return (SearchResult::Ready(place), limit),
                PlacementResult::TooLarge { needs, most } => {
                    return (
                        SearchResult::TooLarge {
                            work: id,
                            needs,
                            most,
                        },
                        limit,
                    );
                }
                PlacementResult::AfterClosing(bytes) => limit = limit.min(self.remaining_bytes(view, bytes)),
                PlacementResult::Blocked(0) => {}
                PlacementResult::Blocked(bytes) => {
                    lacking = lacking.max(bytes);
                    kept = kept.max(self.least(entry.stage, entry.fixed));
                    limit = limit.min(self.bytes_for_others(view.room, kept, since + self.rules.time_slice));
                }
            }
        }
        (SearchResult::Blocked(lacking), limit)
    }

    /// Returns the first work item that can start under `price`.
    fn find_runnable(&self, view: &mut PlacementInputs, price: EvictionLevel) -> SearchResult {
        let mut lacking = None;
        let mut seen = HashSet::new();
        for (id, entry) in self.queue.iter() {
            if !seen.insert((entry.stage, entry.fixed)) {
                continue;
            }
            match self.fit(id, entry, *view, price) {
                PlacementResult::Ready(place) => return SearchResult::Ready(place),
                PlacementResult::TooLarge { needs, most } => {
                    return SearchResult::TooLarge {
                        work: id,
                        needs,
                        most,
                    };
                }
                PlacementResult::AfterClosing(bytes) => {
                    view.limit = view.limit.min(self.remaining_bytes(*view, bytes))
                }
                PlacementResult::Blocked(bytes) => {
                    lacking.get_or_insert(bytes);
                }
            }
        }
        SearchResult::Blocked(lacking.unwrap_or(0))
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
        let elsewhere = place.close.iter().find(|(lane, _)| *lane != place.lane);
        if let Some((lane, _)) = elsewhere {
            let lane = *lane;
            let stages = place.close.iter().filter(|(other, _)| *other == lane);
            let stages: Vec<StageId> = stages.map(|(_, stage)| *stage).collect();
            return self.close(lane, &stages);
        }
        let own: Vec<StageId> = place.close.iter().map(|(_, stage)| *stage).collect();
        let close = self.close_sessions(place.lane, &own);
        self.run(now, place, close)
    }

    /// Frees up to `bytes` for others. Returns, per lane, the idle sessions to close; no work waits for them.
    /// [`Device::closed`] must follow for each lane.
    pub fn relieve(&mut self, bytes: u64) -> Vec<(usize, Vec<S>)> {
        let mut lacking = bytes.saturating_sub(self.closing_bytes());
        let mut close: BTreeMap<usize, Vec<StageId>> = BTreeMap::new();
        for open in self
            .closable(None)
            .into_iter()
            .filter(|open| !open.has_waiting_work)
        {
            if lacking == 0 {
                break;
            }
            lacking = lacking.saturating_sub(open.bytes);
            close.entry(open.lane).or_default().push(open.stage);
        }
        self.begin_to_close_all(close)
    }

    /// Closes the sessions of idle lanes whose stages have no waiting work and for which `keep` returns false.
    /// Returns the same as [`relieve`](Self::relieve).
    pub fn retain(&mut self, keep: impl Fn(&S) -> bool) -> Vec<(usize, Vec<S>)> {
        let mut close: BTreeMap<usize, Vec<StageId>> = BTreeMap::new();
        for open in self.closable(None) {
            let known = self.stages.get(open.stage);
            if !open.has_waiting_work && known.is_some_and(|known| !keep(&known.stage)) {
                close.entry(open.lane).or_default().push(open.stage);
            }
        }
        self.begin_to_close_all(close)
    }

    fn begin_to_close_all(&mut self, close: BTreeMap<usize, Vec<StageId>>) -> Vec<(usize, Vec<S>)> {
        let close = close.into_iter();
        close
            .map(|(lane, stages)| (lane, self.begin_to_close(lane, &stages)))
            .collect()
    }

    fn close(&mut self, lane: usize, stages: &[StageId]) -> Decision<S> {
        let stages = self.begin_to_close(lane, stages);
        Decision::Close { lane, stages }
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

    fn run(&mut self, now: Duration, place: BatchPlacement, close: Vec<S>) -> Decision<S> {
        let nothing = Decision::Wait {
            until: None,
            lacking: 0,
        };
        let first = place.parts.first().and_then(|(id, _)| self.queue.get(*id));
        let Some(stage) = first.map(|entry| entry.stage) else {
            return nothing;
        };
        let (parts, payers) = self.take_parts(&place);
        self.unwait(stage, parts.iter().map(|part| part.rows.len()).sum());
        let lane = self.lanes.get(place.lane);
        let running = Running {
            stage,
            rows: place.rows,
            bytes: place.bytes,
            for_run: place.for_run,
            uses_all_memory: place.uses_all_memory,
            before: lane.map_or(0, |lane| lane.held),
            cold: place.cold,
            open: !place.cold,
            since: now,
            guess: self
                .stages
                .get(stage)
                .map_or(Duration::ZERO, |known| known.rate.time(place.rows)),
            short_for: place.short_for,
            parts: parts.clone(),
            payers,
        };
        self.charge_guess(&running.payers, running.guess);
        self.occupy(place.lane, running, now);
        let stage = self.stages.get(stage).map(|known| known.stage.clone());
        stage.map_or(nothing, |stage| {
            Decision::Run(Run {
                lane: place.lane,
                stage,
                cold: place.cold,
                close,
                parts,
                rows: place.rows,
                bytes: place.bytes,
            })
        })
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
