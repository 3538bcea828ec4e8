//! Who holds how much of the host's memory, and who gets more: without a clock, a lock or a wait inside.

use super::ask::{Ask, Budget, OutOfBudget, Reservation, SMALL};
use super::kind::Kind;
use crate::waiters::Policy;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Who holds how much, and who waits for more.
///
/// Of those that wait for a kind, the tenant that holds least comes first; within a tenant, and between equals, who waits longest.
/// Later kinds come before earlier ones, and while one waits nothing is given to earlier ones. A tenant alone may hold all; beside others
/// it gets no more than its max-min fair share of what requests and grants may hold together, and keeps nobody waiting where it waits for
/// more than that, nor by reads and decoding beyond what is left untouched for these. Small requests wait for nobody.
#[derive(Debug)]
pub struct Ledger {
    budget: Budget,
    /// What the host's process holds that nobody reserved.
    base: u64,
    held: [u64; Kind::COUNT],
    /// Of requests, what is in the part for small ones.
    small: u64,
    tenants: BTreeMap<Arc<str>, Holding>,
    waiting: BTreeMap<u64, (Arc<str>, Ask)>,
}

#[derive(Debug, Default)]
struct Holding {
    /// Of requests and grants, which are shared fairly.
    shared: u64,
    /// Of grants alone.
    grants: u64,
    /// Of small requests.
    small: u64,
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
            small: 0,
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

    /// Bytes that could be reserved for `kind` now. Small requests have [`Budget::small`] besides.
    pub fn room(&self, kind: Kind) -> u64 {
        self.budget.bytes.saturating_sub(self.taken(kind))
    }

    /// What is held, and what is not for `kind`.
    fn taken(&self, kind: Kind) -> u64 {
        let untouched = later(kind).map(|later| self.budget.floor(later).saturating_sub(self.held(later)));
        let small = self.budget.small.saturating_sub(self.small);
        let others = untouched.chain([self.budget.spare, small]);
        others.fold(self.held_in_all(), u64::saturating_add)
    }

    /// Bytes that could be reserved for `kind` were nothing else held.
    pub fn most(&self, kind: Kind) -> u64 {
        let untouched = later(kind).map(|later| self.budget.floor(later));
        let others = untouched.chain([self.budget.spare, self.budget.small]);
        let taken = others.fold(self.base, u64::saturating_add);
        self.budget.bytes.saturating_sub(taken)
    }

    /// Bytes that caches and idle sessions should give back: what whoever is next lacks, or what the base took of the spare ones.
    pub fn lacking(&self) -> u64 {
        let next = self.first_waiting();
        let (kind, bytes) = next.map_or((Kind::Lane, 0), |(_, _, ask)| (ask.kind, ask.bytes(1)));
        bytes
            .saturating_add(self.taken(kind))
            .saturating_sub(self.budget.bytes)
    }

    /// Whether so much fits into the part for small requests.
    fn is_small(&self, tenant: &str, kind: Kind, bytes: u64) -> bool {
        let own = || self.tenants.get(tenant).map_or(0, |holding| holding.small);
        let after = |held: u64| held.saturating_add(bytes);
        kind == Kind::Request
            && after(own()) <= self.budget.small / SMALL
            && after(self.small) <= self.budget.small
            && after(self.held_in_all()) <= self.budget.bytes
    }

    fn fits(&self, tenant: &str, kind: Kind, bytes: u64) -> bool {
        bytes <= self.room(kind) || self.is_small(tenant, kind, bytes)
    }

    /// Reserves at once, before anybody that waits.
    ///
    /// # Errors
    /// [`OutOfBudget`] where there is less now.
    pub fn reserve(&mut self, tenant: &str, kind: Kind, bytes: u64) -> Result<Reservation, OutOfBudget> {
        if !self.fits(tenant, kind, bytes) {
            return Err(self.no_room(bytes, self.room(kind)));
        }
        Ok(self.book(Arc::from(tenant), kind, bytes, 1))
    }

    /// Makes a reservation larger or smaller.
    ///
    /// # Errors
    /// [`OutOfBudget`] where there is less now; it stays as it was.
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

    /// The latest kind comes first; in it who holds least, then who waits longest. Passed over is who would go beyond its share, and who
    /// reads or decodes beyond what is left untouched for that while others wait for what they may have: else somebody who reads on and on
    /// would keep them waiting for ever.
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
                Kind::Request | Kind::Grant => self.within_share(share, tenant, ask),
                Kind::Read | Kind::Decode => !wanted || self.within_floor(ask),
                Kind::Kept | Kind::Lane => true,
            };
            let (shared, _) = self.shared(tenant);
            may.then_some(((std::cmp::Reverse(ask.kind), shared, *id), tenant, *ask))
        });
        let ((.., id), tenant, ask) = ranked.min_by_key(|(rank, ..)| *rank)?;
        Some((id, tenant, ask))
    }

    /// A first grant is always within: else those that hold nothing but requests could wait for each other.
    fn within_share(&self, share: u64, tenant: &str, ask: &Ask) -> bool {
        let (shared, grants) = self.shared(tenant);
        let first = shared == 0 || (ask.kind == Kind::Grant && grants == 0);
        first || shared.saturating_add(ask.bytes(1)) <= share
    }

    fn within_floor(&self, ask: &Ask) -> bool {
        let held = self.held(ask.kind);
        held == 0 || held.saturating_add(ask.bytes(1)) <= self.budget.floor(ask.kind)
    }

    /// What a tenant holds of requests and grants, and of grants alone.
    fn shared(&self, tenant: &str) -> (u64, u64) {
        let holding = self.tenants.get(tenant);
        holding.map_or((0, 0), |holding| (holding.shared, holding.grants))
    }

    /// Who is next, and how many units of what was asked for.
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
        holding.all = holding.all.saturating_add(bytes);
        holding.small = holding.small.saturating_add(small);
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
        holding.all = holding.all.saturating_sub(bytes);
        holding.small = holding.small.saturating_sub(small);
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
