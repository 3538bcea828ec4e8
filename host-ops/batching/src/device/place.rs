//! Placement of work items. Selects the lane, the number of rows, and sessions to evict.

use super::queue::Entry;
use super::short::is_short;
use super::stages::{Readiness, StageId, StageState};
use super::work::{LaneMemory, TIME_SLICE};
use super::{Device, LaneActivity};
use std::hash::Hash;
use std::time::Duration;

/// Evictions that are acceptable to start a work item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EvictionLevel {
    /// Evict only sessions without waiting work. If a lane with a session is soon free, wait for that lane.
    EvictUnused,
    /// Evict any idle session. If a lane with a session is soon free, open a second session only in free
    /// memory.
    EvictAny,
    /// Used for overdue work, without restrictions.
    Unrestricted,
}

/// Inputs of a placement decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlacementInputs {
    pub(super) now: Duration,
    pub(super) room: LaneMemory,
    /// Maximum reservation per batch. The rest is set aside for overdue work.
    pub(super) limit: u64,
}

#[derive(Debug)]
pub(super) enum PlacementResult {
    /// The work item can start after these idle sessions are closed.
    Ready(BatchPlacement),
    /// The work item can start when the sessions being closed are closed. Holds the required bytes.
    AfterClosing(u64),
    /// Bytes missing, or 0 if waiting for a lane is better than opening a session.
    Blocked(u64),
    /// The smallest batch exceeds the available memory.
    TooLarge { work: u64, needs: u64, most: u64 },
}

#[derive(Debug)]
pub(super) struct BatchPlacement {
    pub(super) lane: usize,
    pub(super) cold: bool,
    pub(super) parts: Vec<(u64, usize)>,
    pub(super) rows: usize,
    pub(super) bytes: u64,
    /// Part of `bytes` for the execution, excluding the session.
    pub(super) for_run: u64,
    /// True if the reservation is as large as memory allows.
    pub(super) uses_all_memory: bool,
    /// Time for which the batch counts as short; zero if it is not known to be short.
    pub(super) short_for: Duration,
    pub(super) close: Vec<(usize, StageId)>,
}

/// A session that can be evicted.
pub(super) struct Closable {
    pub(super) lane: usize,
    pub(super) stage: StageId,
    pub(super) bytes: u64,
    last_use: Duration,
    pub(super) has_waiting_work: bool,
}

/// A work item with the lane under consideration.
struct Candidate<'a, S> {
    id: u64,
    entry: &'a Entry,
    stage_state: &'a StageState<S>,
    lane: usize,
    cold: bool,
    /// Bytes that the lane's session retained from earlier batches.
    retained_bytes: u64,
    /// Bytes that a batch can use now or later, including `kept`.
    max_bytes: u64,
}

impl<S> Candidate<'_, S> {
    /// Number of rows of the smallest batch.
    fn least(&self) -> usize {
        self.entry.fixed.unwrap_or(1)
    }

    /// Bytes of the session to open, if any.
    fn session(&self) -> u64 {
        if self.cold {
            self.stage_state.needs.session()
        } else {
            0
        }
    }

    /// Bytes to reserve for a batch of `rows` rows, excluding `kept`. The smallest batch is limited to
    /// `most`, so that an overestimated batch is tried with all memory before being refused.
    fn bytes(&self, rows: usize) -> u64 {
        let bytes = match self.cold {
            true => self.stage_state.needs.cold_run(rows),
            false => self.stage_state.needs.run(rows),
        };
        let bytes = if rows > self.least() {
            bytes
        } else {
            bytes.min(self.max_bytes)
        };
        bytes.saturating_sub(self.retained_bytes)
    }
}

impl<S: Clone + Eq + Hash> Device<S> {
    pub(super) fn fit(
        &self,
        id: u64,
        entry: &Entry,
        view: PlacementInputs,
        price: EvictionLevel,
    ) -> PlacementResult {
        let Some(stage_state) = self.stages.get(entry.stage) else {
            return PlacementResult::Blocked(0);
        };
        let least = entry.fixed.unwrap_or(1);
        let most = self.most(view.room);
        if let Some(needs) = stage_state.needs.required_if_too_large(least, most, view.now) {
            let work = id;
            return PlacementResult::TooLarge { work, needs, most };
        }
        let warm = stage_state.lanes.iter().copied().find(|lane| self.is_idle(*lane));
        let Some(lane) = warm.or_else(|| self.emptiest()) else {
            return PlacementResult::Blocked(0);
        };
        if warm.is_none() && (self.opens(entry.stage) || stage_state.readiness != Readiness::Ready) {
            return PlacementResult::Blocked(0);
        }
        let keeps = !self.is_saturated(stage_state) && self.queue.owed(&entry.tenant) <= TIME_SLICE;
        let soon_free = warm.is_none() && keeps && self.is_soon_free(stage_state, view.now);
        if soon_free && price == EvictionLevel::EvictUnused {
            return PlacementResult::Blocked(0);
        }
        let mut closable = self.closable(Some((lane, entry.stage)));
        match price {
            EvictionLevel::EvictUnused => closable.retain(|open| !open.has_waiting_work),
            EvictionLevel::EvictAny if soon_free => closable.clear(),
            _ => {}
        }
        let candidate = Candidate {
            id,
            entry,
            stage_state,
            lane,
            cold: warm.is_none(),
            retained_bytes: self
                .lanes
                .get(lane)
                .map_or(0, |lane| lane.cached_bytes(entry.stage)),
            max_bytes: self.reachable_bytes(view.room, lane, entry.stage),
        };
        self.fit_on(&candidate, view, &closable)
    }

    fn fit_on(
        &self,
        candidate: &Candidate<'_, S>,
        view: PlacementInputs,
        closable: &[Closable],
    ) -> PlacementResult {
        let needed = candidate.bytes(candidate.least());
        if needed > view.limit {
            return PlacementResult::Blocked(needed - view.limit);
        }
        let free = view.room.free;
        let soon = free.saturating_add(self.closing_bytes());
        let all: u64 = closable.iter().map(|open| open.bytes).sum();
        let in_all = soon.saturating_add(all);
        if needed > in_all {
            return PlacementResult::Blocked(needed - in_all);
        }
        let Candidate { lane, cold, .. } = *candidate;
        let close = self.to_close(lane, cold, needed.saturating_sub(soon), closable);
        if close.is_empty() && needed > free {
            return PlacementResult::AfterClosing(needed);
        }
        let within = (free / self.spread()).min(view.limit).max(needed);
        let (parts, rows) = self.batch(candidate, within);
        let tenant = &candidate.entry.tenant;
        let limit = self.short_limit(tenant, view.now);
        let short_for = match is_short(candidate.stage_state, rows, cold, limit) {
            true => limit,
            false => Duration::ZERO,
        };
        if short_for.is_zero() && !self.may_run_long(tenant, view.now) {
            return PlacementResult::Blocked(0);
        }
        let bytes = match candidate.entry.aborted {
            true => free.min(view.limit).max(needed),
            false => candidate.bytes(rows),
        };
        PlacementResult::Ready(BatchPlacement {
            lane,
            cold,
            parts,
            rows,
            bytes,
            for_run: bytes - candidate.session().min(bytes),
            uses_all_memory: bytes.saturating_add(candidate.retained_bytes) >= candidate.max_bytes,
            short_for,
            close,
        })
    }

    /// Returns the work items to execute together, and the number of rows that fit into `within` bytes.
    fn batch(&self, candidate: &Candidate<'_, S>, within: u64) -> (Vec<(u64, usize)>, usize) {
        let Candidate {
            id,
            entry,
            stage_state,
            ..
        } = *candidate;
        if let Some(fixed) = entry.fixed {
            return (vec![(id, fixed)], fixed);
        }
        if entry.aborted {
            return (vec![(id, 1)], 1);
        }
        let (parts, target) = self.gather(id, entry, stage_state);
        let rows = most_within(target, |rows| candidate.bytes(rows) <= within);
        (parts, rows)
    }

    /// Returns the bytes available to a single batch with all sessions closed.
    fn most(&self, room: LaneMemory) -> u64 {
        let empty: u64 = self.lanes.iter().map(|lane| lane.empty).sum();
        room.limit.saturating_sub(empty)
    }

    /// Returns the bytes that a batch of a stage can use on `lane` now or later, excluding an open session.
    /// While all lanes are idle, only memory that is free or can be freed counts: the rest may be reserved
    /// for the waiting work itself and would never be released.
    fn reachable_bytes(&self, room: LaneMemory, lane: usize, stage: StageId) -> u64 {
        let own = self.lanes.get(lane).and_then(|lane| lane.session(stage));
        let most = self
            .most(room)
            .saturating_sub(own.map_or(0, |open| open.bytes - open.retained_bytes.min(open.bytes)));
        if self.idle() < self.lanes.iter().filter(|lane| lane.is_there()).count() {
            return most;
        }
        let kept = own.map_or(0, |open| open.retained_bytes);
        let closable = self.closable(Some((lane, stage)));
        let others: u64 = closable.iter().map(|open| open.bytes).sum();
        most.min(room.free.saturating_add(others).saturating_add(kept))
    }

    fn is_idle(&self, lane: usize) -> bool {
        self.lanes.get(lane).is_some_and(super::Lane::is_idle)
    }

    /// True if a lane is opening a session for the stage. Sessions of a stage are opened sequentially. Later
    /// ones benefit from the measured size of the first, the stage is prepared once, and lanes that could
    /// only wait do not reserve memory.
    fn opens(&self, stage: StageId) -> bool {
        let mut running = self.lanes.iter().filter_map(super::Lane::running);
        running.any(|running| running.stage == stage && !running.open)
    }

    pub(super) fn idle(&self) -> usize {
        self.lanes.iter().filter(|lane| lane.is_idle()).count()
    }

    /// Number of idle lanes that divide the free memory.
    fn spread(&self) -> u64 {
        let waiting = self.queue.len().max(1);
        self.idle().clamp(1, waiting) as u64
    }

    /// Returns the idle lane for a new session.
    fn emptiest(&self) -> Option<usize> {
        let idle = self.lanes.iter().enumerate().filter(|(_, lane)| lane.is_idle());
        let emptiest = idle.min_by_key(|(_, lane)| (lane.sessions.len(), lane.held));
        emptiest.map(|(index, _)| index)
    }

    /// Returns the bytes of sessions being closed.
    pub(super) fn closing_bytes(&self) -> u64 {
        let closing = self.lanes.iter().map(|lane| match lane.doing {
            LaneActivity::Closing(bytes) => bytes,
            _ => 0,
        });
        closing.sum()
    }

    /// True if the waiting work exceeds one time slice on every lane with a session.
    fn is_saturated(&self, known: &StageState<S>) -> bool {
        let lanes = u32::try_from(known.lanes.len()).unwrap_or(u32::MAX);
        known.rate.time(known.waiting) > TIME_SLICE.saturating_mul(lanes)
    }

    /// True if a lane with a session of the stage executes nothing that may take long.
    fn is_soon_free(&self, known: &StageState<S>, now: Duration) -> bool {
        let mut lanes = known.lanes.iter().filter_map(|lane| self.lanes.get(*lane));
        lanes.any(|lane| lane.running().is_none_or(|running| !running.is_long(now)))
    }

    /// Returns the sessions of idle lanes, least recently used first, except the session of stage and lane
    /// `but`.
    pub(super) fn closable(&self, but: Option<(usize, StageId)>) -> Vec<Closable> {
        let idle = self.lanes.iter().enumerate().filter(|(_, lane)| lane.is_idle());
        let open = idle.flat_map(|(index, lane)| lane.sessions.iter().map(move |open| (index, open)));
        let others = open.filter(|(of, open)| but != Some((*of, open.stage)));
        let mut closable: Vec<Closable> = others
            .map(|(lane, open)| Closable {
                lane,
                stage: open.stage,
                bytes: open.bytes,
                last_use: open.last_use,
                has_waiting_work: but.is_none_or(|(_, stage)| open.stage != stage)
                    && self.stages.get(open.stage).is_some_and(|known| known.waiting > 0),
            })
            .collect();
        closable.sort_by_key(|open| open.last_use);
        closable
    }

    /// Selects sessions to evict so that `bytes` become free, and one on `lane` if a cold batch would exceed
    /// the limit of sessions.
    fn to_close(&self, lane: usize, cold: bool, bytes: u64, closable: &[Closable]) -> Vec<(usize, StageId)> {
        let mut lacking = bytes;
        let mut close: Vec<(usize, StageId)> = Vec::new();
        for open in closable {
            if lacking == 0 {
                break;
            }
            lacking = lacking.saturating_sub(open.bytes);
            close.push((open.lane, open.stage));
        }
        if cold
            && self
                .lanes
                .get(lane)
                .is_some_and(|lane| lane.sessions.len() >= self.rules.sessions_per_lane.max(1))
            && !close.iter().any(|(of, _)| *of == lane)
        {
            let own = self.lanes.get(lane).into_iter().flat_map(|lane| &lane.sessions);
            let oldest = own.min_by_key(|open| open.last_use);
            close.extend(oldest.map(|open| (lane, open.stage)));
        }
        close
    }

    /// Returns the work items of the tenant that can join `id`, and the target number of rows.
    fn gather(&self, id: u64, entry: &Entry, known: &StageState<S>) -> (Vec<(u64, usize)>, usize) {
        let padded = self.rules.padded_rows;
        let aim = padded.unwrap_or_else(|| known.rate.target_rows());
        let aim = aim.min(known.needs.most_rows()).max(1);
        let enough = 2 * aim;
        let mut rows = entry.first_rows();
        let mut parts = vec![(id, rows)];
        if entry.joins() && known.waiting > entry.first_rows() && entry.first_rows() < enough {
            for (other, work) in self.queue.entries_of(&entry.tenant) {
                if other != id && (work.stage == entry.stage && work.joins()) {
                    rows += work.first_rows();
                    parts.push((other, work.first_rows()));
                }
                if rows >= enough {
                    break;
                }
            }
        }
        // Divide evenly. If batching is efficient, a remainder with a single row would cost nearly as much as
        // a whole batch.
        let even = rows.div_ceil(rows.div_ceil(aim));
        (parts, if padded.is_some() { aim } else { even })
    }
}

/// Returns the largest number of rows up to `most` for which `fits` holds, or 1.
fn most_within(most: usize, fits: impl Fn(usize) -> bool) -> usize {
    if fits(most) {
        return most.max(1);
    }
    let mut good = 1;
    let mut bad = most;
    while good + 1 < bad {
        let middle = usize::midpoint(good, bad);
        match fits(middle) {
            true => good = middle,
            false => bad = middle,
        }
    }
    good
}
