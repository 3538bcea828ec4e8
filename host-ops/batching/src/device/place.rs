//! Where a work would run, with how many rows, and what has to go for it.

use super::queue::Entry;
use super::stages::{Known, StageId};
use super::work::Room;
use super::{Device, Doing};
use std::hash::Hash;
use std::time::Duration;

/// What a work may be run at the price of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Price {
    /// No session that work waits for is closed, none is opened beside one that soon is free.
    Little,
    /// Sessions that work waits for are closed, but none for a second session beside one that soon is free.
    Sessions,
    /// It was passed over for a quantum.
    Any,
}

/// What a decision goes by.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    pub(super) now: Duration,
    pub(super) room: Room,
    /// Bytes that a run may take, as others are kept for somebody.
    pub(super) limit: u64,
}

#[derive(Debug)]
pub(super) enum Fit {
    /// It can run now, once these idle sessions are closed.
    Place(Place),
    /// It can run when what is being closed is.
    Soon(u64),
    /// So many bytes lack, or 0 where it is better to wait for a lane.
    Lacks(u64),
    /// One row needs more than there is at most.
    Never { needs: u64, most: u64 },
}

#[derive(Debug)]
pub(super) struct Place {
    pub(super) lane: usize,
    pub(super) cold: bool,
    pub(super) parts: Vec<(u64, usize)>,
    pub(super) rows: usize,
    pub(super) bytes: u64,
    /// Of these for the run alone.
    pub(super) for_run: u64,
    /// Whether there could not be more.
    pub(super) all: bool,
    pub(super) close: Vec<(usize, StageId)>,
}

/// A session that could be closed.
pub(super) struct Closable {
    pub(super) lane: usize,
    pub(super) stage: StageId,
    pub(super) bytes: u64,
    used: Duration,
    pub(super) wanted: bool,
}

/// A work, and the lane that it would run on.
struct Candidate<'a, S> {
    id: u64,
    entry: &'a Entry,
    known: &'a Known<S>,
    lane: usize,
    cold: bool,
    /// What its session there keeps for it.
    kept: u64,
    /// What its run could have sooner or later.
    most: u64,
}

impl<S> Candidate<'_, S> {
    /// Rows of the least run.
    fn least(&self) -> usize {
        self.entry.fixed.unwrap_or(1)
    }

    /// Bytes of the session that is opened for it.
    fn session(&self) -> u64 {
        if self.cold { self.known.needs.session() } else { 0 }
    }

    /// What a run of `rows` is given beyond what is kept for it. With all there is the least one is tried at least.
    fn bytes(&self, rows: usize) -> u64 {
        let bytes = match self.cold {
            true => self.known.needs.cold_run(rows),
            false => self.known.needs.run(rows),
        };
        let bytes = if rows > self.least() {
            bytes
        } else {
            bytes.min(self.most)
        };
        bytes.saturating_sub(self.kept)
    }
}

impl<S: Clone + Eq + Hash> Device<S> {
    pub(super) fn fit(&self, id: u64, entry: &Entry, view: View, price: Price) -> Fit {
        let Some(known) = self.stages.get(entry.stage) else {
            return Fit::Lacks(0);
        };
        let least = entry.fixed.unwrap_or(1);
        let most = self.most(view.room);
        if let Some(needs) = known.needs.hopeless(least, most, view.now) {
            return Fit::Never { needs, most };
        }
        let warm = known.lanes.iter().copied().find(|lane| self.is_idle(*lane));
        let Some(lane) = warm.or_else(|| self.emptiest()) else {
            return Fit::Lacks(0);
        };
        if warm.is_none() && self.opens(entry.stage) {
            return Fit::Lacks(0);
        }
        let keeps = !self.is_saturated(known) && self.queue.owed(&entry.tenant) <= self.rules.quantum;
        let soon_free = warm.is_none() && !known.lanes.is_empty() && keeps;
        if soon_free && price == Price::Little {
            return Fit::Lacks(0);
        }
        let mut closable = self.closable(Some((lane, entry.stage)));
        match price {
            Price::Little => closable.retain(|open| !open.wanted),
            Price::Sessions if soon_free => closable.clear(),
            _ => {}
        }
        let candidate = Candidate {
            id,
            entry,
            known,
            lane,
            cold: warm.is_none(),
            kept: self
                .lanes
                .get(lane)
                .map_or(0, |lane| lane.cached_bytes(entry.stage)),
            most: self.reach(view.room, lane, entry.stage),
        };
        self.fit_on(&candidate, view, &closable)
    }

    fn fit_on(&self, candidate: &Candidate<'_, S>, view: View, closable: &[Closable]) -> Fit {
        let needed = candidate.bytes(candidate.least());
        if needed > view.limit {
            return Fit::Lacks(needed - view.limit);
        }
        let free = view.room.now;
        let soon = free.saturating_add(self.coming());
        let all: u64 = closable.iter().map(|open| open.bytes).sum();
        let in_all = soon.saturating_add(all);
        if needed > in_all {
            return Fit::Lacks(needed - in_all);
        }
        let Candidate { lane, cold, .. } = *candidate;
        let close = self.to_close(lane, cold, needed.saturating_sub(soon), closable);
        if close.is_empty() && needed > free {
            return Fit::Soon(needed);
        }
        let within = (free / self.spread()).min(view.limit).max(needed);
        let (parts, rows) = self.batch(candidate, within);
        let bytes = match candidate.entry.aborted {
            true => free.min(view.limit).max(needed),
            false => candidate.bytes(rows),
        };
        Fit::Place(Place {
            lane,
            cold,
            parts,
            rows,
            bytes,
            for_run: bytes - candidate.session().min(bytes),
            all: bytes.saturating_add(candidate.kept) >= candidate.most,
            close,
        })
    }

    /// The works that run together, and how many rows they have within so many bytes.
    fn batch(&self, candidate: &Candidate<'_, S>, within: u64) -> (Vec<(u64, usize)>, usize) {
        let Candidate { id, entry, known, .. } = *candidate;
        if let Some(fixed) = entry.fixed {
            return (vec![(id, fixed)], fixed);
        }
        if entry.aborted {
            return (vec![(id, 1)], 1);
        }
        let (parts, target) = self.gather(id, entry, known);
        let rows = most_within(target, |rows| candidate.bytes(rows) <= within);
        (parts, rows)
    }

    /// What lanes could have for one run, were all sessions closed.
    fn most(&self, room: Room) -> u64 {
        let empty: u64 = self.lanes.iter().map(|lane| lane.empty).sum();
        room.most.saturating_sub(empty)
    }

    /// What a run of a stage could have on `lane` sooner or later, beyond its session where that is open. While no lane works that is what they
    /// have now: what others hold may be held for the very work that waits.
    fn reach(&self, room: Room, lane: usize, stage: StageId) -> u64 {
        let own = self.lanes.get(lane).and_then(|lane| lane.session(stage));
        let most = self
            .most(room)
            .saturating_sub(own.map_or(0, |open| open.bytes - open.kept.min(open.bytes)));
        if self.idle() < self.lanes.iter().filter(|lane| lane.is_there()).count() {
            return most;
        }
        let kept = own.map_or(0, |open| open.kept);
        let closable = self.closable(Some((lane, stage)));
        let others: u64 = closable.iter().map(|open| open.bytes).sum();
        most.min(room.now.saturating_add(others).saturating_add(kept))
    }

    fn is_idle(&self, lane: usize) -> bool {
        self.lanes.get(lane).is_some_and(super::Lane::is_idle)
    }

    /// Whether a lane is opening a session for a stage. One at a time does: what the first took is known to the next, and a stage is prepared once,
    /// with no memory kept for others that could only wait for that.
    fn opens(&self, stage: StageId) -> bool {
        let mut running = self.lanes.iter().filter_map(super::Lane::running);
        running.any(|running| running.stage == stage && !running.open)
    }

    pub(super) fn idle(&self) -> usize {
        self.lanes.iter().filter(|lane| lane.is_idle()).count()
    }

    /// How many idle lanes the free memory is for.
    fn spread(&self) -> u64 {
        let waiting = self.queue.len().max(1);
        self.idle().clamp(1, waiting) as u64
    }

    /// The idle lane that a new session should go to.
    fn emptiest(&self) -> Option<usize> {
        let idle = self.lanes.iter().enumerate().filter(|(_, lane)| lane.is_idle());
        let emptiest = idle.min_by_key(|(_, lane)| (lane.sessions.len(), lane.held));
        emptiest.map(|(index, _)| index)
    }

    /// Bytes of what lanes are closing.
    pub(super) fn coming(&self) -> u64 {
        let closing = self.lanes.iter().map(|lane| match lane.doing {
            Doing::Closing(bytes) => bytes,
            _ => 0,
        });
        closing.sum()
    }

    /// Whether more work waits for the lanes that have a session than they do in a quantum.
    fn is_saturated(&self, known: &Known<S>) -> bool {
        let lanes = u32::try_from(known.lanes.len()).unwrap_or(u32::MAX);
        known.rate.time(known.waiting) > self.rules.quantum.saturating_mul(lanes)
    }

    /// Sessions of idle lanes but that of a stage on a lane, the one used longest ago first.
    pub(super) fn closable(&self, but: Option<(usize, StageId)>) -> Vec<Closable> {
        let idle = self.lanes.iter().enumerate().filter(|(_, lane)| lane.is_idle());
        let open = idle.flat_map(|(index, lane)| lane.sessions.iter().map(move |open| (index, open)));
        let others = open.filter(|(of, open)| but != Some((*of, open.stage)));
        let mut closable: Vec<Closable> = others
            .map(|(lane, open)| Closable {
                lane,
                stage: open.stage,
                bytes: open.bytes,
                used: open.used,
                wanted: but.is_none_or(|(_, stage)| open.stage != stage)
                    && self.stages.get(open.stage).is_some_and(|known| known.waiting > 0),
            })
            .collect();
        closable.sort_by_key(|open| open.used);
        closable
    }

    /// Those that go so that `lane` has so many bytes more, and a place for a session if the run is `cold`.
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
        let full = |lane: &super::Lane| lane.sessions.len() >= self.rules.sessions_per_lane.max(1);
        if cold && self.lanes.get(lane).is_some_and(full) && !close.iter().any(|(of, _)| *of == lane) {
            let own = self.lanes.get(lane).into_iter().flat_map(|lane| &lane.sessions);
            let oldest = own.min_by_key(|open| open.used);
            close.extend(oldest.map(|open| (lane, open.stage)));
        }
        close
    }

    /// The works of its tenant that could run together with `id`, and how many rows they should have.
    fn gather(&self, id: u64, entry: &Entry, known: &Known<S>) -> (Vec<(u64, usize)>, usize) {
        let rules = &self.rules;
        let aim = match rules.padded_rows {
            Some(rows) => rows,
            None => known.rate.aim(rules.quantum, rules.tolerance, rules.most_rows),
        };
        let aim = aim.min(known.needs.most_rows()).max(1);
        let enough = 2 * aim;
        let mut rows = entry.first_rows();
        let mut parts = vec![(id, rows)];
        if entry.joins() && known.waiting > entry.first_rows() && entry.first_rows() < enough {
            let same = |other: &Entry| other.stage == entry.stage && other.joins();
            for (other, work) in self.queue.entries_of(&entry.tenant) {
                if other != id && same(work) {
                    rows += work.first_rows();
                    parts.push((other, work.first_rows()));
                }
                if rows >= enough {
                    break;
                }
            }
        }
        // As even as can be: a rest of one row would cost nearly as much as a whole batch where batches pay.
        let even = rows.div_ceil(rows.div_ceil(aim));
        (parts, if rules.padded_rows.is_some() { aim } else { even })
    }
}

/// The most rows up to `most` that `fits` holds for, of which at least 1.
fn most_within(most: usize, fits: impl Fn(usize) -> bool) -> usize {
    if fits(most) {
        return most.max(1);
    }
    let (mut good, mut bad) = (1, most);
    while good + 1 < bad {
        let middle = usize::midpoint(good, bad);
        match fits(middle) {
            true => good = middle,
            false => bad = middle,
        }
    }
    good
}
