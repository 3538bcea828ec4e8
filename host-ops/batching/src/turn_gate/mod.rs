#[cfg(test)]
mod tests;

use crate::turns::Turns;
use crate::waiters::{HeldShare, Policy, Waiters};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// A limited number of permits for long work. The tenant with the fewest permits receives the next free one;
/// between equals, the tenant with less work time. Within a tenant, requests are served first come, first
/// served.
///
/// Tenants share the queue in the same way. If it is full, a new request displaces the newest one of the
/// tenant with the most entries, provided that this tenant keeps no fewer entries than the new request's
/// tenant has then: each tenant gets its max-min fair share (Bertsekas and Gallager, "Data networks", 6.5.2).
/// A request of a tenant without permits or entries is always accepted, beyond the queue's limit if
/// necessary, up to [`NEWCOMERS`].
pub type TurnGate = Waiters<GateTurns>;

/// The right to work; released on drop.
pub type Permit = HeldShare<GateTurns>;

/// Maximum number of excess entries in a full queue, reserved for tenants without permits or other entries. A
/// single host serves fewer tenants simultaneously.
pub const NEWCOMERS: usize = 1024;

/// Policy of a [`TurnGate`].
pub struct GateTurns {
    turns: Turns<Entrant>,
    permits: usize,
    queued: usize,
    running: usize,
    displaced: Option<u64>,
}

struct Entrant {
    id: u64,
    share: Share,
}

/// Limits of a tenant at a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// Permits are limited to the number that remains free, and queued requests are unlimited. The first
    /// tenant can use half of the permits, the second tenant half of the rest, and a new tenant finds a free
    /// permit. A single permit is passed from tenant to tenant.
    Adaptive,
    /// Fixed limits of permits and queued requests.
    AtMost(Standing),
}

/// Counts or limits of running and queued requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// Requests with a permit.
    pub running: usize,
    /// Requests that wait for a permit.
    pub queued: usize,
}

/// Reason for rejecting or dismissing a request for a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnterError {
    /// The tenant has reached the limits for permits and queued requests.
    #[error("the tenant has reached its limit with {} running and {} queued", .0.running, .0.queued)]
    TenantFull(Standing),
    /// The queue is full.
    #[error("the limit for all tenants is reached with {} running and {} queued", .0.running, .0.queued)]
    Full(Standing),
    /// The gate is closed.
    #[error("closed")]
    Closed,
}

impl TurnGate {
    /// Opens a gate with `permits` permits and a queue for `queued` requests.
    pub fn open(permits: usize, queued: usize) -> Arc<Self> {
        Self::new(GateTurns::new(permits, queued))
    }

    /// Waits for a permit for `tenant`. Dropping the future withdraws the request.
    ///
    /// # Errors
    /// Returns [`EnterError`] if the tenant has reached its limits, or if the queue is full, including when
    /// another tenant displaces the request. Returns [`EnterError::Closed`] if the gate is or becomes closed.
    pub async fn enter(self: &Arc<Self>, tenant: &str, share: Share) -> Result<Permit, EnterError> {
        self.ask(tenant, share)?.await.ok_or_else(|| match self.closed() {
            true => EnterError::Closed,
            false => EnterError::Full(self.standing()),
        })
    }

    /// Running and queued requests, summed over the tenants.
    pub fn standing(&self) -> Standing {
        self.with_policy(GateTurns::standing)
    }

    /// Number of running and queued requests of `tenant`.
    pub fn standing_of(&self, tenant: &str) -> Standing {
        self.with_policy(|gate| gate.own(tenant))
    }

    /// Running and queued requests per tenant, for active tenants.
    pub fn standings(&self) -> BTreeMap<String, Standing> {
        self.with_policy(|gate| {
            let active = gate.turns.active();
            active
                .map(|tenant| (tenant.to_string(), gate.own(tenant)))
                .collect()
        })
    }
}

impl Share {
    /// Permit limit of the tenant while `free` permits are free.
    fn permits(self, free: usize) -> usize {
        match self {
            Self::Adaptive => free,
            Self::AtMost(standing) => standing.running,
        }
    }

    fn queued(self) -> usize {
        match self {
            Self::Adaptive => usize::MAX,
            Self::AtMost(standing) => standing.queued,
        }
    }
}

impl GateTurns {
    fn new(permits: usize, queued: usize) -> Self {
        Self {
            turns: Turns::new(Duration::ZERO),
            permits,
            queued,
            running: 0,
            displaced: None,
        }
    }

    fn standing(&self) -> Standing {
        Standing {
            running: self.running,
            queued: self.turns.queues().map(VecDeque::len).sum(),
        }
    }

    fn own(&self, tenant: &str) -> Standing {
        let (running, queued) = self.turns.counts(tenant);
        Standing { running, queued }
    }

    fn free(&self) -> usize {
        self.permits.saturating_sub(self.running)
    }

    /// Makes room in a full queue for a tenant with `own` requests.
    fn make_room(&mut self, own: Standing) -> Result<(), EnterError> {
        let longest = self.turns.queues();
        let longest = longest.max_by_key(|ready| (ready.len(), ready.back().map(|last| last.id)));
        let last = longest.and_then(|ready| Some((ready.len(), ready.back()?.id)));
        if let Some((_, id)) = last.filter(|(length, _)| *length > own.queued + 1) {
            self.leave(id);
            self.displaced = Some(id);
            return Ok(());
        }
        let all = self.standing();
        let newcomer = own == Standing::default() && all.queued < self.queued.saturating_add(NEWCOMERS);
        if newcomer {
            Ok(())
        } else {
            Err(EnterError::Full(all))
        }
    }
}

impl Policy for GateTurns {
    type Request = Share;
    /// Tenant that holds the permit.
    type Share = Arc<str>;
    type Refused = EnterError;

    fn ask(&mut self, id: u64, tenant: &str, share: Share) -> Result<(), EnterError> {
        let own = self.own(tenant);
        let waits = self.free() == 0 || own.running >= share.permits(self.free());
        if waits && own.queued >= share.queued() {
            return Err(EnterError::TenantFull(own));
        }
        if waits && self.standing().queued >= self.queued {
            self.make_room(own)?;
        }
        self.turns.push(tenant, Entrant { id, share });
        Ok(())
    }

    fn next(&mut self) -> Option<(u64, Arc<str>)> {
        let free = self.free();
        if free == 0 {
            return None;
        }
        let (tenant, entrant) = self.turns.begin_by(|running, ready| {
            // The newest request defines the tenant's limits.
            let most = ready.back()?.share.permits(free);
            (running < most).then_some(running)
        })?;
        self.running += 1;
        Some((entrant.id, tenant))
    }

    fn displaced(&mut self) -> Option<u64> {
        self.displaced.take()
    }

    fn leave(&mut self, id: u64) {
        self.turns.remove(|entrant| entrant.id == id);
    }

    fn give_back(&mut self, tenant: &Arc<str>, time: Duration) {
        self.running -= 1;
        self.turns.ran(tenant, time);
    }
}
