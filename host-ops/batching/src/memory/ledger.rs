//! Ledger of the host's memory. Contains no clocks, locks or waits.

use super::ask::{Ask, Budget, MODEST, OutOfBudget, Reservation, SMALL};
use super::kind::Kind;
use crate::waiters::Policy;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Reservations and waiting requests.
///
/// Later kinds are served before earlier kinds. While a request for a later kind waits, earlier kinds receive
/// no memory. Within a kind, the tenant with the smallest amount of memory is first; between equals, the
/// oldest request. A single tenant may hold all memory. Under contention, a tenant receives up to its max-min
/// fair share of the memory for requests and grants. Other tenants are not blocked by requests that exceed
/// the share, or by reads and decodes that exceed the corresponding parts of the budget. Small requests never
/// wait.
///
/// When memory is short, whether because of reservations or a grown base, tenants with the most memory are
/// refused first: the last part of the memory, [`Budget::modest`], is only available to tenants with little
/// memory, and for the first request and grant of a tenant.
#[derive(Debug)]
pub struct Ledger {
    budget: Budget,
    /// Bytes that the host's process uses without a reservation.
    base: u64,
    held: [u64; Kind::COUNT],
    /// Part of the requests in the area for small requests.
    small: u64,
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
        self.held.get(kind.index()).copied().unwrap_or(0)
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
        let others = untouched.chain([self.budget.spare, small]);
        others.fold(self.held_in_all(), u64::saturating_add)
    }

    /// Bytes that could be reserved for `kind` without other reservations.
    pub fn most(&self, kind: Kind) -> u64 {
        let untouched = later(kind).map(|later| self.budget.floor(later));
        let others = untouched.chain([self.budget.spare, self.budget.small]);
        let taken = others.fold(self.base, u64::saturating_add);
        self.budget.bytes.saturating_sub(taken)
    }

    /// Bytes that caches and idle sessions should release: those missing for the next request, or for
    /// restoring [`Budget::spare`].
    pub fn shortage(&self) -> u64 {
        let next = self.first_waiting();
        let (kind, bytes) = next.map_or((Kind::Lane, 0), |(_, _, ask)| (ask.kind, ask.bytes(1)));
        bytes
            .saturating_add(self.taken(kind))
            .saturating_sub(self.budget.bytes)
    }

    /// True if the request fits into the area for small requests.
    fn is_small(&self, tenant: &str, kind: Kind, bytes: u64) -> bool {
        let own = || self.tenants.get(tenant).map_or(0, |holding| holding.small);
        let after = |held: u64| held.saturating_add(bytes);
        kind == Kind::Request
            && after(own()) <= self.budget.small / SMALL
            && after(self.small) <= self.budget.small
            && after(self.held_in_all()) <= self.budget.bytes
    }

    fn fits(&self, tenant: &str, kind: Kind, bytes: u64) -> bool {
        bytes <= self.room_of(tenant, kind, bytes) || self.is_small(tenant, kind, bytes)
    }

    /// Bytes that the tenant can reserve now if it asks for `bytes`.
    fn room_of(&self, tenant: &str, kind: Kind, bytes: u64) -> u64 {
        let (shared, _) = self.shared(tenant);
        let modest = shared.saturating_add(bytes) <= self.budget.modest / MODEST;
        let leaves_modest = is_shared(kind) && !modest && !self.is_first(tenant, kind);
        let room = self.room(kind);
        match leaves_modest {
            true => room.saturating_sub(self.budget.modest),
            false => room,
        }
    }

    /// True for the first request and the first grant of a tenant. They are exempt from limits per tenant,
    /// because a tenant must never wait for its own memory.
    fn is_first(&self, tenant: &str, kind: Kind) -> bool {
        let (shared, grants) = self.shared(tenant);
        shared == 0 || (kind == Kind::Grant && grants == 0)
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
        self.unbook(&less);
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

    /// Returns the next request: the latest kind first, then the tenant with the least memory, then the
    /// oldest request. Requests beyond the tenant's share are skipped. Reads and decodes that exceed the
    /// corresponding part of the budget are skipped while another tenant waits for memory within the fair
    /// share. Otherwise a tenant that reads continuously would block that tenant forever.
    fn first_waiting(&self) -> Option<(u64, &Arc<str>, Ask)> {
        let share = self.share();
        let waiting = || self.waiting.values().filter(|(_, ask)| is_shared(ask.kind));
        let mut wanting = waiting().filter(|(tenant, ask)| self.within_share(share, tenant, ask));
        let one = wanting.next().map(|(tenant, _)| tenant);
        let other = wanting
            .map(|(tenant, _)| tenant)
            .find(|tenant| Some(*tenant) != one);
        let ranked = self.waiting.iter().filter_map(|(id, (tenant, ask))| {
            let wanted = other.is_some() || one.is_some_and(|one| one != tenant);
            let may = match ask.kind {
                Kind::Request | Kind::Grant => {
                    self.within_share(share, tenant, ask) && !self.is_held_back(tenant, ask)
                }
                Kind::Read | Kind::Decode => !wanted || self.within_floor(ask),
                Kind::Cache | Kind::Lane => true,
            };
            let (shared, _) = self.shared(tenant);
            may.then_some(((std::cmp::Reverse(ask.kind), shared, *id), tenant, *ask))
        });
        let ((.., id), tenant, ask) = ranked.min_by_key(|(rank, ..)| *rank)?;
        Some((id, tenant, ask))
    }

    /// True if the tenant's requests and grants stay within `share` with this request, and for the first one.
    fn within_share(&self, share: u64, tenant: &str, ask: &Ask) -> bool {
        let (shared, _) = self.shared(tenant);
        self.is_first(tenant, ask.kind) || shared.saturating_add(ask.bytes(1)) <= share
    }

    /// True if the request has to wait because it would use memory that is left to tenants with little
    /// memory. It does not delay those tenants.
    fn is_held_back(&self, tenant: &str, ask: &Ask) -> bool {
        let bytes = ask.bytes(1);
        let room = self.room_of(tenant, ask.kind, bytes);
        bytes > room && room < self.room(ask.kind)
    }

    fn within_floor(&self, ask: &Ask) -> bool {
        let held = self.held(ask.kind);
        held == 0 || held.saturating_add(ask.bytes(1)) <= self.budget.floor(ask.kind)
    }

    /// Returns the tenant's bytes in requests and grants, and in grants only.
    fn shared(&self, tenant: &str) -> (u64, u64) {
        let holding = self.tenants.get(tenant);
        holding.map_or((0, 0), |holding| (holding.shared, holding.grants))
    }

    /// Returns the next request and the number of units to grant.
    fn choose(&self) -> Option<(u64, usize)> {
        let mut waiting = self.waiting.iter();
        let small = waiting.find(|(_, (tenant, ask))| self.is_small(tenant, ask.kind, ask.bytes(ask.units)));
        if let Some((id, (_, ask))) = small {
            return Some((*id, ask.units));
        }
        let (id, tenant, ask) = self.first_waiting()?;
        let mut units = ask.units_within(self.most(ask.kind));
        if is_shared(ask.kind) {
            let left = self.share().saturating_sub(self.shared(tenant).0);
            units = units.min(ask.units_within(left));
        }
        let bytes = ask.bytes(units);
        (bytes <= self.room_of(tenant, ask.kind, bytes)).then_some((id, units))
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
        let most = |tenant: &str| self.tenants.get(tenant).map_or(0, |holding| holding.peak_shared);
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
        let small = if self.is_small(&tenant, kind, bytes) {
            bytes
        } else {
            0
        };
        self.small = self.small.saturating_add(small);
        if let Some(held) = self.held.get_mut(kind.index()) {
            *held = held.saturating_add(bytes);
        }
        let holding = self.tenants.entry(Arc::clone(&tenant)).or_default();
        holding.total = holding.total.saturating_add(bytes);
        holding.small = holding.small.saturating_add(small);
        if is_shared(kind) {
            holding.shared = holding.shared.saturating_add(bytes);
            holding.peak_shared = holding.peak_shared.max(holding.shared);
        }
        if kind == Kind::Grant {
            holding.grants = holding.grants.saturating_add(bytes);
        }
        Reservation {
            tenant,
            kind,
            bytes,
            small,
            units,
        }
    }

    fn unbook(&mut self, reservation: &Reservation) {
        let (tenant, kind) = (&reservation.tenant, reservation.kind);
        let (bytes, small) = (reservation.bytes, reservation.small);
        self.small = self.small.saturating_sub(small);
        if let Some(held) = self.held.get_mut(kind.index()) {
            *held = held.saturating_sub(bytes);
        }
        let Some(holding) = self.tenants.get_mut(tenant) else {
            return;
        };
        holding.total = holding.total.saturating_sub(bytes);
        holding.small = holding.small.saturating_sub(small);
        if is_shared(kind) {
            holding.shared = holding.shared.saturating_sub(bytes);
        }
        if kind == Kind::Grant {
            holding.grants = holding.grants.saturating_sub(bytes);
        }
        if holding.shared == 0 {
            holding.peak_shared = 0;
        }
        if holding.total == 0 {
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
    type Refused = OutOfBudget;

    fn ask(&mut self, id: u64, tenant: &str, ask: Ask) -> Result<(), OutOfBudget> {
        let (needed, most) = (ask.bytes(1), self.most(ask.kind));
        if needed > most && !self.is_small(tenant, ask.kind, needed) {
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
        self.unbook(reservation);
    }
}
