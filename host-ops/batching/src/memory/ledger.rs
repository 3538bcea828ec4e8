//! Who holds how much of the host's memory, and who gets more: without a clock, a lock or a wait inside.

use super::kind::Kind;
use crate::waiters::Policy;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What there is to reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// Bytes that the host may hold in all, its lanes included.
    pub bytes: u64,
    /// The largest grant of one sample, that requests do not take all; what earlier kinds leave untouched.
    pub grant: u64,
    /// See `grant`: the largest object read, the image whose decoding takes most, and the least a lane needs.
    pub read: u64,
    /// See `grant`.
    pub decode: u64,
    /// See `grant`.
    pub lane: u64,
}

impl Budget {
    fn floor(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Read => self.read,
            Kind::Decode => self.decode,
            Kind::Lane => self.lane,
            Kind::Grant => self.grant,
            Kind::Kept | Kind::Request => 0,
        }
    }
}

/// What is asked for: a fixed part, and so many units of which a smaller number will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// What for.
    pub kind: Kind,
    /// Bytes that come with the first unit.
    pub fixed: u64,
    /// Bytes of a unit.
    pub each: u64,
    /// Units; at least 1 is used. Fewer are granted only where so many can never fit, or are beyond the tenant's share.
    pub units: usize,
}

impl Ask {
    /// So many bytes, all or none.
    pub fn of(kind: Kind, bytes: u64) -> Self {
        Self {
            kind,
            fixed: bytes,
            each: 0,
            units: 1,
        }
    }

    /// Bytes of so many units.
    pub(crate) fn bytes(&self, units: usize) -> u64 {
        self.fixed.saturating_add(self.each.saturating_mul(units as u64))
    }

    /// The most units that take no more than `bytes`, of which at least 1.
    fn units_within(&self, bytes: u64) -> usize {
        let room = bytes.saturating_sub(self.fixed);
        let fit = room.checked_div(self.each).unwrap_or(u64::MAX);
        usize::try_from(fit)
            .unwrap_or(usize::MAX)
            .clamp(1, self.units.max(1))
    }
}

/// What somebody holds.
#[derive(Debug)]
pub struct Reservation {
    pub(super) tenant: Arc<str>,
    pub(super) kind: Kind,
    pub(super) bytes: u64,
    /// Units of what was asked for.
    pub(super) units: usize,
}

/// More than there can ever be, or now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{needed} bytes of memory are needed, of which this host has at most {most} for it within its memory_budget of {budget}"
)]
pub struct NoRoom {
    /// Bytes that were asked for.
    pub needed: u64,
    /// The most that could be had.
    pub most: u64,
    /// The whole budget.
    pub budget: u64,
}

/// Who holds how much, and who waits for more.
///
/// Of those that wait for a kind, the tenant that holds least comes first; within a tenant, and between equals, who waits longest.
/// Later kinds come before earlier ones, and while one waits nothing is given to earlier ones. A tenant alone may hold all; beside others
/// it gets no more than its max-min fair share of what requests and grants may hold together, and keeps nobody waiting where it waits for
/// more than that.
#[derive(Debug)]
pub struct Ledger {
    budget: Budget,
    /// What the host's process holds that nobody reserved.
    base: u64,
    held: [u64; Kind::COUNT],
    tenants: BTreeMap<Arc<str>, Holding>,
    waiting: BTreeMap<u64, (Arc<str>, Ask)>,
}

#[derive(Debug, Default)]
struct Holding {
    /// Of requests and grants, which are shared fairly.
    shared: u64,
    /// Of grants alone.
    grants: u64,
    /// Of all kinds.
    all: u64,
    /// The most of `shared` since it last held none: what it makes use of, and may ask for again.
    most: u64,
}

/// Kinds that tenants share fairly: the others last only as long as something works on them.
const fn is_shared(kind: Kind) -> bool {
    matches!(kind, Kind::Request | Kind::Grant)
}

impl Ledger {
    /// Nobody holds anything.
    pub fn new(budget: Budget) -> Self {
        Self {
            budget,
            base: 0,
            held: [0; Kind::COUNT],
            tenants: BTreeMap::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// What there is to reserve.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// What the host's process holds that nobody reserved.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The base is `bytes` from now on.
    pub fn set_base(&mut self, bytes: u64) {
        self.base = bytes;
    }

    /// Bytes of this kind that are held.
    pub fn held(&self, kind: Kind) -> u64 {
        self.held.get(kind.index()).copied().unwrap_or(0)
    }

    /// Bytes of all kinds that are held, with the base.
    pub fn held_in_all(&self) -> u64 {
        self.held
            .iter()
            .fold(self.base, |sum, held| sum.saturating_add(*held))
    }

    /// Bytes that this tenant holds.
    pub fn held_by(&self, tenant: &str) -> u64 {
        self.tenants.get(tenant).map_or(0, |holding| holding.all)
    }

    /// Every tenant that holds something, and how much.
    pub fn tenants(&self) -> impl Iterator<Item = (&str, u64)> {
        self.tenants.iter().map(|(name, holding)| (&**name, holding.all))
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether others than `tenant` wait for memory.
    pub fn is_wanted_beside(&self, tenant: &str) -> bool {
        self.waiting.values().any(|(waiting, _)| **waiting != *tenant)
    }

    /// Bytes that could be reserved for `kind` now.
    pub fn room(&self, kind: Kind) -> u64 {
        let untouched = later(kind).map(|later| self.budget.floor(later).saturating_sub(self.held(later)));
        let taken = untouched.fold(self.held_in_all(), u64::saturating_add);
        self.budget.bytes.saturating_sub(taken)
    }

    /// Bytes that could be reserved for `kind` were nothing else held.
    pub fn most(&self, kind: Kind) -> u64 {
        let untouched = later(kind).map(|later| self.budget.floor(later));
        let taken = untouched.fold(self.base, u64::saturating_add);
        self.budget.bytes.saturating_sub(taken)
    }

    /// Bytes that whoever is next lacks: what caches and idle sessions should give back.
    pub fn lacking(&self) -> u64 {
        self.first_waiting()
            .map_or(0, |(_, _, ask)| ask.bytes(1).saturating_sub(self.room(ask.kind)))
    }

    /// Reserves at once, before anybody that waits.
    ///
    /// # Errors
    /// [`NoRoom`] where there is less now.
    pub fn take(&mut self, tenant: &str, kind: Kind, bytes: u64) -> Result<Reservation, NoRoom> {
        if bytes > self.room(kind) {
            return Err(self.no_room(bytes, self.room(kind)));
        }
        Ok(self.book(Arc::from(tenant), kind, bytes, 1))
    }

    /// Makes a reservation larger or smaller.
    ///
    /// # Errors
    /// [`NoRoom`] where there is less now; it stays as it was.
    pub fn resize(&mut self, reservation: &mut Reservation, bytes: u64) -> Result<(), NoRoom> {
        let more = bytes.saturating_sub(reservation.bytes);
        let room = self.room(reservation.kind);
        if more > room {
            return Err(self.no_room(bytes, reservation.bytes.saturating_add(room)));
        }
        let changed = self.book(Arc::clone(&reservation.tenant), reservation.kind, more, 0);
        drop(changed);
        self.unbook(
            &reservation.tenant,
            reservation.kind,
            reservation.bytes.saturating_sub(bytes),
        );
        reservation.bytes = bytes;
        Ok(())
    }

    fn no_room(&self, needed: u64, most: u64) -> NoRoom {
        NoRoom {
            needed,
            most,
            budget: self.budget.bytes,
        }
    }

    /// The latest kind comes first; in it who holds least, then who waits longest. Who would go beyond its share is passed
    /// over, but for its first grant: else those that hold nothing but requests could wait for each other.
    fn first_waiting(&self) -> Option<(u64, &Arc<str>, Ask)> {
        let share = self.share();
        let ranked = self.waiting.iter().filter_map(|(id, (tenant, ask))| {
            let (shared, grants) = self.shared(tenant);
            let first = shared == 0 || (ask.kind == Kind::Grant && grants == 0);
            let may = !is_shared(ask.kind) || first || shared.saturating_add(ask.bytes(1)) <= share;
            may.then_some(((std::cmp::Reverse(ask.kind), shared, *id), tenant, *ask))
        });
        let ((.., id), tenant, ask) = ranked.min_by_key(|(rank, ..)| *rank)?;
        Some((id, tenant, ask))
    }

    /// What a tenant holds of requests and grants, and of grants alone.
    fn shared(&self, tenant: &str) -> (u64, u64) {
        let holding = self.tenants.get(tenant);
        holding.map_or((0, 0), |holding| (holding.shared, holding.grants))
    }

    /// Who is next, and how many units of what was asked for.
    fn choose(&self) -> Option<(u64, usize)> {
        let (id, tenant, ask) = self.first_waiting()?;
        let mut units = ask.units_within(self.most(ask.kind));
        if is_shared(ask.kind) {
            let left = self.share().saturating_sub(self.shared(tenant).0);
            units = units.min(ask.units_within(left));
        }
        (ask.bytes(units) <= self.room(ask.kind)).then_some((id, units))
    }

    /// How much of requests and grants a tenant may hold before it gets no more: what they may hold together split evenly, where what some do
    /// not want is split among the others. Everybody wants what it holds or has held, and what it waits for. At least 1; all there is while
    /// nobody waits.
    fn share(&self) -> u64 {
        if self.waiting.is_empty() {
            return u64::MAX;
        }
        let all = self.room(Kind::Grant) + self.held(Kind::Request) + self.held(Kind::Grant);
        let holding = self.tenants.iter();
        let mut wants: BTreeMap<&str, u64> =
            holding.map(|(name, holding)| (&**name, holding.shared)).collect();
        for (tenant, ask) in self.waiting.values().filter(|(_, ask)| is_shared(ask.kind)) {
            let want = wants.entry(tenant).or_default();
            *want = want.saturating_add(ask.bytes(ask.units.max(1)));
        }
        let most = |tenant: &str| self.tenants.get(tenant).map_or(0, |holding| holding.most);
        let mut wants: Vec<u64> = wants
            .into_iter()
            .map(|(name, want)| want.max(most(name)))
            .collect();
        wants.retain(|want| *want > 0);
        wants.sort_unstable();
        let (mut left, mut sharers) = (all, wants.len() as u64);
        for want in wants {
            let even = left / sharers;
            if want > even {
                return even.max(1);
            }
            left -= want;
            sharers -= 1;
        }
        all.max(1)
    }

    fn book(&mut self, tenant: Arc<str>, kind: Kind, bytes: u64, units: usize) -> Reservation {
        if let Some(held) = self.held.get_mut(kind.index()) {
            *held = held.saturating_add(bytes);
        }
        let holding = self.tenants.entry(Arc::clone(&tenant)).or_default();
        holding.all = holding.all.saturating_add(bytes);
        if is_shared(kind) {
            holding.shared = holding.shared.saturating_add(bytes);
            holding.most = holding.most.max(holding.shared);
        }
        if kind == Kind::Grant {
            holding.grants = holding.grants.saturating_add(bytes);
        }
        Reservation {
            tenant,
            kind,
            bytes,
            units,
        }
    }

    fn unbook(&mut self, tenant: &Arc<str>, kind: Kind, bytes: u64) {
        if let Some(held) = self.held.get_mut(kind.index()) {
            *held = held.saturating_sub(bytes);
        }
        let Some(holding) = self.tenants.get_mut(tenant) else {
            return;
        };
        holding.all = holding.all.saturating_sub(bytes);
        if is_shared(kind) {
            holding.shared = holding.shared.saturating_sub(bytes);
        }
        if kind == Kind::Grant {
            holding.grants = holding.grants.saturating_sub(bytes);
        }
        if holding.shared == 0 {
            holding.most = 0;
        }
        if holding.all == 0 {
            self.tenants.remove(tenant);
        }
    }
}

fn later(kind: Kind) -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(move |other| *other > kind)
}

impl Policy for Ledger {
    type Request = Ask;
    type Share = Reservation;
    type Refused = NoRoom;

    fn ask(&mut self, id: u64, tenant: &str, ask: Ask) -> Result<(), NoRoom> {
        let (needed, most) = (ask.bytes(1), self.most(ask.kind));
        if needed > most {
            return Err(self.no_room(needed, most));
        }
        self.waiting.insert(id, (Arc::from(tenant), ask));
        Ok(())
    }

    fn next(&mut self, _now: Instant) -> Option<(u64, Reservation)> {
        let (id, units) = self.choose()?;
        let (tenant, ask) = self.waiting.remove(&id)?;
        Some((id, self.book(tenant, ask.kind, ask.bytes(units), units)))
    }

    fn leave(&mut self, id: u64) {
        self.waiting.remove(&id);
    }

    fn give_back(&mut self, reservation: &Reservation, _time: Duration) {
        self.unbook(&reservation.tenant, reservation.kind, reservation.bytes);
    }
}
