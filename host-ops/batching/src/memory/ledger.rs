//! Ledger of the host's memory. Contains no clocks, locks or waits.

use super::ask::{Ask, Budget, MODEST, OutOfBudget, Reservation, SMALL};
use super::kind::Kind;
use crate::waiters::Policy;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use strum::{EnumCount, IntoEnumIterator};

/// Reservations and waiting requests.
///
/// Later kinds are served before earlier kinds. While a request for a later kind waits, earlier kinds receive
/// no memory. Within a kind, the tenant with the smallest amount of memory is first; between equals, the
/// oldest request. A single tenant may hold almost all memory. Under contention, a tenant receives up to its
/// max-min fair share of the memory for requests and grants. Other tenants are not blocked by requests that
/// exceed the share, or by reads and decodes that exceed the corresponding parts of the budget: these are
/// served when they fit. Requests of tenants with little memory only wait until they fit. Small requests never
/// wait.
///
/// When memory is short, whether because of reservations or a grown base, tenants with the most memory are
/// refused first: the last part of the memory, [`Budget::modest`], is only available to tenants with little
/// memory, and for the first request and grant of a tenant if they would never fit otherwise. Likewise, half of
/// [`Budget::read`] is only available to tenants that read little, and for the first read of a tenant.
#[derive(Debug)]
pub struct Ledger {
    budget: Budget,
    /// Bytes that the host's process uses without a reservation.
    base: u64,
    held: [u64; Kind::COUNT],
    /// Part of the requests in the area for small requests.
    small: u64,
    /// Bytes of requests and grants of tenants with little memory.
    modest: u64,
    tenants: BTreeMap<Arc<str>, Holding>,
    waiting: BTreeMap<u64, (Arc<str>, Ask)>,
}

#[derive(Debug, Default)]
struct Holding {
    /// Bytes of fairly divided kinds, namely requests and grants.
    shared: u64,
    /// Bytes of grants alone.
    grants: u64,
    /// Bytes of small requests.
    small: u64,
    /// Bytes of all kinds.
    total: u64,
    /// Maximum of `shared` since the last time this value was 0. The tenant may request the same amount
    /// again.
    peak_shared: u64,
}

/// True for kinds that are divided fairly among tenants; other kinds are only held while work is in progress.
const fn is_shared(kind: Kind) -> bool {
    matches!(kind, Kind::Request | Kind::Grant)
}

impl Ledger {
    /// Creates a ledger without reservations.
    pub fn new(budget: Budget) -> Self {
        Self {
            budget,
            base: 0,
            held: [0; Kind::COUNT],
            small: 0,
            modest: 0,
            tenants: BTreeMap::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// Returns the budget.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Bytes that the host's process uses without a reservation.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Sets the base.
    pub fn set_base(&mut self, bytes: u64) {
        self.base = bytes;
    }

    /// Bytes reserved for `kind`.
    pub fn held(&self, kind: Kind) -> u64 {
        self.held.get(kind as usize).copied().unwrap_or(0)
    }

    /// Bytes reserved in total, including the base.
    pub fn held_in_all(&self) -> u64 {
        self.held
            .iter()
            .fold(self.base, |sum, held| sum.saturating_add(*held))
    }

    /// Bytes reserved by `tenant`.
    pub fn held_by(&self, tenant: &str) -> u64 {
        self.tenants.get(tenant).map_or(0, |holding| holding.total)
    }

    /// Tenants with reservations, and the number of bytes.
    pub fn tenants(&self) -> impl Iterator<Item = (&str, u64)> {
        self.tenants
            .iter()
            .map(|(name, holding)| (&**name, holding.total))
    }

    /// Number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// True if a tenant other than `tenant` waits for memory.
    pub fn is_wanted_by_others(&self, tenant: &str) -> bool {
        self.waiting.values().any(|(waiting, _)| **waiting != *tenant)
    }

    /// Bytes that can be reserved for `kind` now, in addition to [`Budget::small`] for small requests.
    pub fn room(&self, kind: Kind) -> u64 {
        self.budget.bytes.saturating_sub(self.taken(kind))
    }

    /// Bytes that are reserved or unavailable to `kind`.
    fn taken(&self, kind: Kind) -> u64 {
        let untouched = later(kind).map(|later| self.budget.floor(later).saturating_sub(self.held(later)));
        let small = self.budget.small.saturating_sub(self.small);
        let others = untouched.chain([self.budget.spare, small, self.left_by(kind)]);
        others.fold(self.held_in_all(), u64::saturating_add)
    }

    /// Bytes that lanes leave free in addition to the floors of later kinds, which they do not have: those with
    /// which a tenant with little memory is served while the networks of other tenants run. A network runs
    /// for seconds and cannot be interrupted within an operator.
    fn left_by(&self, kind: Kind) -> u64 {
        if kind != Kind::Lane {
            return 0;
        }
        [Kind::Read, Kind::Decode]
            .into_iter()
            .map(|kind| self.budget.floor(kind).saturating_sub(self.held(kind)))
            .fold(self.unused_modest(0), u64::saturating_add)
    }

    /// Bytes that could be reserved for `kind` without other reservations.
    pub fn most(&self, kind: Kind) -> u64 {
        let untouched = later(kind).map(|later| self.budget.floor(later));
        let left = match kind {
            Kind::Lane => self.budget.left_by_lanes(),
            _ => 0,
        };
        let others = untouched.chain([self.budget.spare, self.budget.small, left]);
        let taken = others.fold(self.base, u64::saturating_add);
        self.budget.bytes.saturating_sub(taken)
    }

    /// Bytes that caches and idle sessions should release: those missing for the next request, or for
    /// restoring [`Budget::spare`].
    pub fn shortage(&self) -> u64 {
        let next = self.ranked(self.share()).into_iter().next();
        let (kind, bytes) = next.map_or((Kind::Lane, 0), |(_, _, ask)| (ask.kind, ask.bytes(1)));
        bytes
            .saturating_add(self.taken(kind))
            .saturating_sub(self.budget.bytes)
    }

    /// True if the request fits into the area for small requests.
    fn is_small(&self, tenant: &str, kind: Kind, bytes: u64) -> bool {
        let own = self.tenants.get(tenant).map_or(0, |holding| holding.small);
        kind == Kind::Request
            && own.saturating_add(bytes) <= self.budget.small / SMALL
            && self.small.saturating_add(bytes) <= self.budget.small
            && self.held_in_all().saturating_add(bytes) <= self.budget.bytes
    }

    fn fits(&self, tenant: &str, kind: Kind, bytes: u64) -> bool {
        bytes <= self.room_of(tenant, kind, bytes) || self.is_small(tenant, kind, bytes)
    }

    /// Bytes that the tenant can reserve now if it asks for `bytes`.
    fn room_of(&self, tenant: &str, kind: Kind, bytes: u64) -> u64 {
        let room = self.room(kind);
        if self.is_modest(tenant, kind, bytes) {
            return room;
        }
        let left = match kind {
            Kind::Request | Kind::Grant if self.fits_only_alone(tenant, kind, bytes) => 0,
            Kind::Request => self.unused_modest(self.modest_of(tenant)),
            // Without other grants, a grant must fit: requests hold memory while waiting for their grants.
            Kind::Grant if self.held(kind) > 0 => self.unused_modest(0),
            Kind::Read if self.own(tenant, kind) > 0 => self.modest_part(kind),
            Kind::Grant | Kind::Read | Kind::Cache | Kind::Decode | Kind::Lane => 0,
        };
        room.saturating_sub(left)
    }

    /// Part of [`Budget::modest`] that is free, if `more` bytes in it are no longer counted.
    fn unused_modest(&self, more: u64) -> u64 {
        self.budget
            .modest
            .saturating_sub(self.modest.saturating_sub(more))
    }

    /// True if this first request or grant would never fit otherwise.
    fn fits_only_alone(&self, tenant: &str, kind: Kind, bytes: u64) -> bool {
        let most = self.most(kind).saturating_sub(self.budget.modest);
        self.is_first(tenant, kind) && self.own(tenant, kind).saturating_add(bytes) > most
    }

    /// Part of the memory for `kind` that only tenants with little memory can use.
    fn modest_part(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Request | Kind::Grant => self.budget.modest,
            Kind::Read => self.budget.read / 2,
            Kind::Cache | Kind::Decode | Kind::Lane => 0,
        }
    }

    /// True if the tenant has little memory even with `bytes` more.
    fn is_modest(&self, tenant: &str, kind: Kind, bytes: u64) -> bool {
        self.own(tenant, kind).saturating_add(bytes) <= self.modest_part(kind) / MODEST
    }

    /// Bytes of the tenant's requests and grants if these are few, otherwise 0.
    fn modest_of(&self, tenant: &str) -> u64 {
        let shared = self.own(tenant, Kind::Grant);
        match shared <= self.budget.modest / MODEST {
            true => shared,
            false => 0,
        }
    }

    /// Bytes that the tenant holds for kinds like `kind`: requests and grants, or reads and decodes.
    fn own(&self, tenant: &str, kind: Kind) -> u64 {
        self.tenants.get(tenant).map_or(0, |holding| match kind {
            Kind::Request | Kind::Grant => holding.shared,
            Kind::Read | Kind::Decode | Kind::Cache | Kind::Lane => {
                holding.total.saturating_sub(holding.shared)
            }
        })
    }

    /// True for the first request and the first grant of a tenant. They are exempt from the tenant's share,
    /// because a tenant must never wait for its own memory.
    fn is_first(&self, tenant: &str, kind: Kind) -> bool {
        self.own(tenant, kind) == 0
            || (kind == Kind::Grant && self.tenants.get(tenant).map_or(0, |holding| holding.grants) == 0)
    }

    /// Reserves memory immediately, ahead of waiting requests.
    ///
    /// # Errors
    /// Returns [`OutOfBudget`] if less memory is available now.
    pub fn reserve(&mut self, tenant: &str, kind: Kind, bytes: u64) -> Result<Reservation, OutOfBudget> {
        if !self.fits(tenant, kind, bytes) {
            return Err(self.no_room(bytes, self.room(kind)));
        }
        Ok(self.book(Arc::from(tenant), kind, bytes, 1))
    }

    /// Changes the size of a reservation.
    ///
    /// # Errors
    /// Returns [`OutOfBudget`] if less memory is available now; the reservation remains unchanged.
    pub fn resize(&mut self, reservation: &mut Reservation, bytes: u64) -> Result<(), OutOfBudget> {
        let more = bytes.saturating_sub(reservation.bytes);
        if !self.fits(&reservation.tenant, reservation.kind, more) {
            let most = reservation.bytes.saturating_add(self.room(reservation.kind));
            return Err(self.no_room(bytes, most));
        }
        let more = self.book(Arc::clone(&reservation.tenant), reservation.kind, more, 0);
        let small = reservation.small.saturating_add(more.small);
        let less = Reservation {
            bytes: reservation.bytes.saturating_sub(bytes),
            small: small.saturating_sub(bytes),
            ..more
        };
        self.count(&less, u64::saturating_sub);
        (reservation.bytes, reservation.small) = (bytes, small.min(bytes));
        Ok(())
    }

    fn no_room(&self, needed: u64, most: u64) -> OutOfBudget {
        OutOfBudget {
            needed,
            most,
            budget: self.budget.bytes,
        }
    }

    /// Returns the waiting requests that may be served, in order: the latest kind first, then the tenant with the
    /// least memory, then the oldest request. Skips requests beyond the tenant's share. Skips reads and decodes
    /// that exceed the corresponding part of the budget while another tenant waits for memory within the fair
    /// share, unless the tenant holds little of it. Otherwise a tenant that reads continuously would block the
    /// others forever.
    fn ranked(&self, share: u64) -> Vec<(u64, &Arc<str>, Ask)> {
        let waiting = self.waiting.values().filter(|(_, ask)| is_shared(ask.kind));
        let mut wanting = waiting.filter(|(tenant, ask)| self.may_have(share, tenant, ask));
        let one = wanting.next().map(|(tenant, _)| tenant);
        let other = wanting
            .map(|(tenant, _)| tenant)
            .find(|tenant| Some(*tenant) != one);
        let may = |tenant: &Arc<str>, ask: &Ask| match ask.kind {
            _ if self.is_held_back(tenant, ask) => false,
            Kind::Request | Kind::Grant => self.may_have(share, tenant, ask),
            Kind::Read | Kind::Decode => {
                let wanted = other.is_some() || one.is_some_and(|one| one != tenant);
                !wanted || self.within_floor(ask) || self.is_modest(tenant, ask.kind, ask.bytes(1))
            }
            Kind::Cache | Kind::Lane => true,
        };
        let served = self.waiting.iter().filter(|(_, (tenant, ask))| may(tenant, ask));
        let mut ranked: Vec<_> = served.map(|(id, (tenant, ask))| (*id, tenant, *ask)).collect();
        ranked
            .sort_by_key(|(id, tenant, ask)| (std::cmp::Reverse(ask.kind), self.own(tenant, ask.kind), *id));
        ranked
    }

    /// True if the request can be served when memory becomes free, because it is within the share or the first
    /// request of the tenant.
    fn may_have(&self, share: u64, tenant: &str, ask: &Ask) -> bool {
        self.is_first(tenant, ask.kind) || self.within_share(share, tenant, ask)
    }

    /// True if the tenant's requests and grants stay within `share` with this request.
    fn within_share(&self, share: u64, tenant: &str, ask: &Ask) -> bool {
        self.own(tenant, ask.kind).saturating_add(ask.bytes(1)) <= share
    }

    /// True if a request that is not the first one has to wait because it would use memory that is left to
    /// tenants with little memory. Such a request must not block others.
    fn is_held_back(&self, tenant: &str, ask: &Ask) -> bool {
        let bytes = ask.bytes(1);
        let room = self.room_of(tenant, ask.kind, bytes);
        bytes > room && room < self.room(ask.kind) && !self.is_first(tenant, ask.kind)
    }

    fn within_floor(&self, ask: &Ask) -> bool {
        let held = self.held(ask.kind);
        held == 0 || held.saturating_add(ask.bytes(1)) <= self.budget.floor(ask.kind)
    }

    /// Returns the next request and the number of units to grant.
    fn choose(&self) -> Option<(u64, usize)> {
        let mut waiting = self.waiting.iter();
        let small = waiting.find(|(_, (tenant, ask))| self.is_small(tenant, ask.kind, ask.bytes(ask.units)));
        if let Some((id, (_, ask))) = small {
            return Some((*id, ask.units));
        }
        let share = self.share();
        let mut blocked = false;
        for (id, tenant, ask) in self.ranked(share) {
            let units = self.units(share, tenant, &ask);
            let bytes = ask.bytes(units);
            let passes = !blocked || self.is_modest(tenant, ask.kind, bytes);
            if passes && bytes <= self.room_of(tenant, ask.kind, bytes) {
                return Some((id, units));
            }
            blocked |= !is_shared(ask.kind) || self.within_share(share, tenant, &ask);
        }
        None
    }

    /// Number of units to grant.
    fn units(&self, share: u64, tenant: &str, ask: &Ask) -> usize {
        let units = ask.units_within(self.most(ask.kind));
        if !is_shared(ask.kind) {
            return units;
        }
        units.min(ask.units_within(share.saturating_sub(self.own(tenant, ask.kind))))
    }

    /// Returns the max-min fair share. The memory for requests and grants is divided evenly, and parts that a
    /// tenant does not need are divided between the rest. A tenant's demand consists of reservations and
    /// waiting requests, or of the earlier maximum if larger. Returns 1 or more, and [`u64::MAX`] if no
    /// request waits.
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
        let mut wants: Vec<u64> = wants
            .into_iter()
            .map(|(name, want)| want.max(self.tenants.get(name).map_or(0, |holding| holding.peak_shared)))
            .collect();
        wants.retain(|want| *want > 0);
        wants.sort_unstable();
        let mut left = all;
        let mut sharers = wants.len() as u64;
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
        let small = match self.is_small(&tenant, kind, bytes) {
            true => bytes,
            false => 0,
        };
        let reservation = Reservation {
            tenant,
            kind,
            bytes,
            small,
            units,
        };
        self.count(&reservation, u64::saturating_add);
        reservation
    }

    /// Adds the reservation to the sums, or subtracts it from them, with `change`.
    fn count(&mut self, reservation: &Reservation, change: fn(u64, u64) -> u64) {
        let Reservation { tenant, kind, .. } = reservation;
        let bytes = reservation.bytes;
        self.small = change(self.small, reservation.small);
        if let Some(held) = self.held.get_mut(*kind as usize) {
            *held = change(*held, bytes);
        }
        self.modest = self.modest.saturating_sub(self.modest_of(tenant));
        let holding = self.tenants.entry(Arc::clone(tenant)).or_default();
        holding.total = change(holding.total, bytes);
        holding.small = change(holding.small, reservation.small);
        if is_shared(*kind) {
            holding.shared = change(holding.shared, bytes);
        }
        if *kind == Kind::Grant {
            holding.grants = change(holding.grants, bytes);
        }
        holding.peak_shared = match holding.shared {
            0 => 0,
            shared => shared.max(holding.peak_shared),
        };
        if holding.total == 0 {
            self.tenants.remove(tenant);
        }
        self.modest = self.modest.saturating_add(self.modest_of(tenant));
    }
}

fn later(kind: Kind) -> impl Iterator<Item = Kind> {
    Kind::iter().filter(move |other| *other > kind)
}

impl Policy for Ledger {
    type Request = Ask;
    type Share = Reservation;
    type Refused = OutOfBudget;

    fn ask(&mut self, id: u64, tenant: &str, ask: Ask) -> Result<(), OutOfBudget> {
        let needed = ask.bytes(1);
        let most = self.most(ask.kind);
        if needed > most && !self.is_small(tenant, ask.kind, needed) {
            return Err(self.no_room(needed, most));
        }
        self.waiting.insert(id, (Arc::from(tenant), ask));
        Ok(())
    }

    fn next(&mut self) -> Option<(u64, Reservation)> {
        let (id, units) = self.choose()?;
        let (tenant, ask) = self.waiting.remove(&id)?;
        Some((id, self.book(tenant, ask.kind, ask.bytes(units), units)))
    }

    fn leave(&mut self, id: u64) {
        self.waiting.remove(&id);
    }

    fn give_back(&mut self, reservation: &Reservation, _time: Duration) {
        self.count(reservation, u64::saturating_sub);
    }
}
