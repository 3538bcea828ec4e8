#[cfg(test)]
mod tests;

use crate::turns::{Account, Turns};
use crate::waiters::{Held, Policy, Waiters};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A number of permits for long work, and those who wait for one. A free permit goes to the tenant that has the fewest; among
/// equals to the one whose work took the least time; within a tenant, first come, first served.
///
/// Tenants share the queue as they do the permits. Once it is full, whoever has fewer in it takes the place of the latest of the tenant
/// that has the most, as long as that keeps no fewer than the other has then: what each has is its max-min fair share (Bertsekas and
/// Gallager, "Data networks", 6.5.2). A tenant that has nothing here finds room for one in any case, beyond the queue if need be, up to
/// [`NEWCOMERS`] of them.
pub type TurnGate = Waiters<GateTurns>;

/// The right to work, until dropped.
pub type Permit = Held<GateTurns>;

/// How many may wait beyond a full queue, of tenants that have nothing else at the gate: more tenants than that are not served by one host
/// at a time.
pub const NEWCOMERS: usize = 1024;

/// Whose turn it is at a [`TurnGate`].
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

/// How many permits of a gate one tenant may have at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// As many as it leaves free: one that takes all it can leaves half of them, a second one half of the rest, so whoever comes
    /// anew finds one. A single permit goes from one to the next. Any number may wait.
    AsManyAsItLeaves,
    /// So many, and so many waiting for one.
    AtMost(Standing),
}

/// How many run and wait, or may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// With a permit.
    pub running: usize,
    /// Without one yet.
    pub queued: usize,
}

/// Why somebody may not wait for a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnterError {
    /// The tenant's share is in use, and as many wait for it as may.
    #[error("the tenant has {} running and {} queued, its limit", .0.running, .0.queued)]
    TenantFull(Standing),
    /// As many wait as may, all tenants together.
    #[error("{} are running and {} queued, the limit", .0.running, .0.queued)]
    Full(Standing),
    /// Nobody gets a permit any more.
    #[error("closed")]
    Closed,
}

impl TurnGate {
    /// So many permits, and at most so many waiting for them.
    pub fn open(permits: usize, queued: usize) -> Arc<Self> {
        Self::new(GateTurns::new(permits, queued))
    }

    /// Waits for this tenant's turn; dropping the future gives it up.
    ///
    /// # Errors
    /// [`EnterError`]; whoever waits when the gate is closed, or when others need its place in the queue, is told so as well.
    pub async fn enter(self: &Arc<Self>, tenant: &str, share: Share) -> Result<Permit, EnterError> {
        let sent_away = || match self.closed() {
            true => EnterError::Closed,
            false => EnterError::Full(self.standing()),
        };
        self.ask(tenant, share)?.await.ok_or_else(sent_away)
    }

    /// How many have a permit and how many wait.
    pub fn standing(&self) -> Standing {
        self.with_policy(GateTurns::standing)
    }

    /// The same, of one tenant.
    pub fn standing_of(&self, tenant: &str) -> Standing {
        self.with_policy(|gate| gate.own(tenant))
    }

    /// The same, of every tenant that has or waits for any.
    pub fn standings(&self) -> BTreeMap<String, Standing> {
        self.with_policy(|gate| {
            let active = gate.turns.accounts().filter(|(_, account)| account.is_active());
            active
                .map(|(tenant, account)| (tenant.to_string(), Standing::from_account(account)))
                .collect()
        })
    }
}

impl Standing {
    fn from_account(account: &Account<Entrant>) -> Self {
        Self {
            running: account.running,
            queued: account.ready.len(),
        }
    }
}

impl Share {
    /// How many permits a tenant may have where `free` are.
    fn permits(self, free: usize) -> usize {
        match self {
            Self::AsManyAsItLeaves => free,
            Self::AtMost(standing) => standing.running,
        }
    }

    fn queued(self) -> usize {
        match self {
            Self::AsManyAsItLeaves => usize::MAX,
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
        let queued = self.turns.accounts().map(|(_, account)| account.ready.len());
        Standing {
            running: self.running,
            queued: queued.sum(),
        }
    }

    fn own(&self, tenant: &str) -> Standing {
        self.turns
            .account(tenant)
            .map(Standing::from_account)
            .unwrap_or_default()
    }

    fn free(&self) -> usize {
        self.permits.saturating_sub(self.running)
    }

    /// Finds room in a full queue for one more of a tenant that has `own` here.
    fn make_room(&mut self, own: Standing) -> Result<(), EnterError> {
        let longest = self.turns.accounts().map(|(_, account)| &account.ready);
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
    /// Whose it is.
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

    fn next(&mut self, _now: Instant) -> Option<(u64, Arc<str>)> {
        let free = self.free();
        if free == 0 {
            return None;
        }
        let (tenant, entrant) = self.turns.begin_by(|account| {
            // What the latest to ask may have is what the tenant may have now.
            let most = account.ready.back()?.share.permits(free);
            (account.running < most).then_some((account.running, account.used, account.last))
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
