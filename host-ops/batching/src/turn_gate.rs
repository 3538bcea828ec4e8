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
    #[error("{} of this tenant run and {} wait, which is all it may have", .0.running, .0.queued)]
    TenantFull(Standing),
    /// As many wait as may, all tenants together.
    #[error("{} run and {} wait, which is all there may be", .0.running, .0.queued)]
    Full(Standing),
    /// Nobody gets a permit any more.
    #[error("it is closed")]
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
                .map(|(tenant, account)| (tenant.to_string(), Standing::of(account)))
                .collect()
        })
    }
}

impl Standing {
    fn of(account: &Account<Entrant>) -> Self {
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
        self.turns.account(tenant).map(Standing::of).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt, poll};
    use proptest::prelude::*;

    const MUCH: Share = own(10, 10);

    const fn own(running: usize, queued: usize) -> Share {
        Share::AtMost(Standing { running, queued })
    }

    fn halving(permits: usize) -> Arc<TurnGate> {
        TurnGate::open(permits, usize::MAX)
    }

    /// The permit that there is, or else nothing.
    fn now(gate: &Arc<TurnGate>, tenant: &str) -> Option<Permit> {
        let entered = gate.enter(tenant, Share::AsManyAsItLeaves).now_or_never();
        entered.map(Result::unwrap)
    }

    async fn refused(gate: &Arc<TurnGate>, tenant: &str, share: Share) -> EnterError {
        gate.enter(tenant, share).await.map(drop).unwrap_err()
    }

    #[tokio::test]
    async fn one_at_a_time_and_the_tenant_that_had_less_first() {
        let gate = halving(1);
        let enter = |tenant| Box::pin(gate.enter(tenant, Share::AsManyAsItLeaves));
        let first = enter("greedy").await.unwrap();
        let (mut greedy, mut modest) = (enter("greedy"), enter("modest"));
        assert!(poll!(&mut greedy).is_pending() && poll!(&mut modest).is_pending());
        std::thread::sleep(Duration::from_millis(1));
        drop(first);
        assert!(poll!(&mut greedy).is_pending());
        drop(modest.await.unwrap());
        drop(greedy.await.unwrap());
    }

    #[test]
    fn who_takes_all_it_can_leaves_as_many_as_it_has() {
        let gate = halving(32);
        let most = |tenant: &str| std::iter::from_fn(|| now(&gate, tenant)).collect::<Vec<_>>();
        let first = most("first");
        let (second, third) = (most("second"), most("third"));
        assert_eq!([first.len(), second.len(), third.len()], [16, 8, 4]);
        let newcomer = now(&gate, "newcomer");
        assert!(newcomer.is_some());
        drop((second, third, newcomer));
        assert!(now(&gate, "first").is_none(), "it has what it leaves free");
        drop(first);
        assert_eq!(most("first").len(), 16);
    }

    #[tokio::test]
    async fn who_gives_up_holds_nobody_up_and_is_forgotten_at_once() {
        let gate = halving(1);
        let enter = || Box::pin(gate.enter("a", Share::AsManyAsItLeaves));
        let first = enter().await.unwrap();
        let mut gone = enter();
        assert!(poll!(&mut gone).is_pending());
        assert_eq!(gate.standing().queued, 1);
        drop(gone);
        assert_eq!(gate.standing().queued, 0);
        let mut next = enter();
        assert!(poll!(&mut next).is_pending());
        drop(first);
        assert!(next.now_or_never().is_some());
        assert!(now(&gate, "b").is_some());
    }

    #[tokio::test]
    async fn permits_then_queue_then_full_and_permits_come_free_in_order() {
        let gate = TurnGate::open(1, 1);
        let first = gate.enter("a", MUCH).await.unwrap();
        let mut second = Box::pin(gate.enter("a", MUCH));
        assert!(poll!(&mut second).is_pending());
        let both = Standing {
            running: 1,
            queued: 1,
        };
        assert_eq!(gate.standing(), both);
        assert_eq!(refused(&gate, "a", MUCH).await, EnterError::Full(both));
        drop(first);
        let second = second.await.unwrap();
        assert_eq!((gate.standing().running, gate.standing().queued), (1, 0));
        drop(second);
        assert!(
            gate.standings().is_empty(),
            "nothing is kept of who has nothing here"
        );
    }

    #[tokio::test]
    async fn leaving_the_queue_makes_room() {
        let gate = TurnGate::open(1, 1);
        let first = gate.enter("a", MUCH).await.unwrap();
        let mut second = Box::pin(gate.enter("b", MUCH));
        assert!(poll!(&mut second).is_pending());
        drop(second);
        assert!(gate.enter("b", MUCH).now_or_never().is_none());
        assert_eq!(gate.standing().queued, 0);
        let mut third = Box::pin(gate.enter("b", MUCH));
        assert!(poll!(&mut third).is_pending());
        drop(first);
        // The permit is on its way to somebody who leaves.
        drop(third);
        assert_eq!(gate.standing(), Standing::default());
    }

    #[tokio::test]
    async fn a_tenant_that_asks_for_much_leaves_room_for_others() {
        let gate = TurnGate::open(2, 10);
        let _first = gate.enter("greedy", own(1, 1)).await.unwrap();
        let mut second = Box::pin(gate.enter("greedy", own(1, 1)));
        assert!(poll!(&mut second).is_pending());
        let refused = refused(&gate, "greedy", own(1, 1)).await;
        assert!(matches!(refused, EnterError::TenantFull(_)), "{refused}");
        assert!(gate.enter("other", own(1, 1)).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_free_permit_goes_to_who_has_the_fewest_and_then_to_who_used_the_least() {
        let gate = TurnGate::open(2, 10);
        let enter = |tenant| Box::pin(gate.enter(tenant, MUCH));
        let (one, two) = (enter("a").await.unwrap(), enter("a").await.unwrap());
        let (mut more, mut other) = (enter("a"), enter("b"));
        assert!(poll!(&mut more).is_pending() && poll!(&mut other).is_pending());
        drop(one);
        let other = other.await.unwrap();
        assert!(poll!(&mut more).is_pending());
        // Both have one permit now; a has used its two for a while.
        let mut again = enter("b");
        assert!(poll!(&mut again).is_pending());
        let each = Standing {
            running: 1,
            queued: 1,
        };
        assert_eq!((gate.standings()["a"], gate.standings()["b"]), (each, each));
        drop(two);
        let more = more.await.unwrap();
        assert!(poll!(&mut again).is_pending(), "a had none");
        drop((more, other));
        assert!(again.await.is_ok());
    }

    #[tokio::test]
    async fn where_everybody_has_one_permit_nobody_waits_for_another() {
        let gate = TurnGate::open(usize::MAX, 10);
        let first = gate.enter("greedy", own(1, 10)).await.unwrap();
        let mut second = Box::pin(gate.enter("greedy", own(1, 10)));
        assert!(poll!(&mut second).is_pending());
        assert!(gate.enter("other", own(1, 10)).now_or_never().is_some());
        assert_eq!(gate.asked(), 3);
        drop(first);
        assert!(second.now_or_never().is_some());
    }

    #[tokio::test]
    async fn closing_sends_the_queue_away_and_keeps_what_runs() {
        let gate = TurnGate::open(1, 4);
        let first = gate.enter("a", MUCH).await.unwrap();
        let mut second = Box::pin(gate.enter("a", MUCH));
        assert!(poll!(&mut second).is_pending());
        gate.close();
        assert!(gate.closed());
        assert_eq!(second.await.map(drop).unwrap_err(), EnterError::Closed);
        assert_eq!(refused(&gate, "a", MUCH).await, EnterError::Closed);
        assert_eq!((gate.standing().running, gate.standing().queued), (1, 0));
        drop(first);
        assert_eq!(gate.standing(), Standing::default());
    }

    #[tokio::test]
    async fn who_has_more_of_a_full_queue_makes_room_for_who_has_less() {
        let gate = TurnGate::open(1, 4);
        let enter = |tenant| Box::pin(gate.enter(tenant, MUCH));
        let first = enter("greedy").await.unwrap();
        let mut greedy: Vec<_> = (0..4).map(|_| enter("greedy")).collect();
        for waiting in &mut greedy {
            assert!(poll!(waiting).is_pending());
        }
        let queued = |tenant| gate.standing_of(tenant).queued;
        let mut modest: Vec<_> = (0..2).map(|_| enter("modest")).collect();
        for waiting in &mut modest {
            assert!(poll!(waiting).is_pending());
        }
        assert_eq!((queued("greedy"), queued("modest")), (2, 2));
        // The latest went back, and nobody gets more by asking again.
        for waiting in greedy.split_off(2) {
            assert!(matches!(waiting.await, Err(EnterError::Full(_))));
        }
        for tenant in ["greedy", "modest"] {
            assert!(matches!(refused(&gate, tenant, MUCH).await, EnterError::Full(_)));
        }
        drop(first);
        assert!(modest.remove(0).await.is_ok(), "it has the fewest");
    }

    #[derive(Debug, Clone)]
    enum Event {
        Asks(usize),
        Leaves(usize),
        Ends(usize),
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let event = prop_oneof![
            5 => (0..12_usize).prop_map(Event::Asks),
            1 => any::<usize>().prop_map(Event::Leaves),
            2 => any::<usize>().prop_map(Event::Ends),
        ];
        prop::collection::vec(event, 0..200)
    }

    fn picked<T>(from: &mut Vec<T>, number: usize) -> Option<T> {
        (!from.is_empty()).then(|| from.swap_remove(number % from.len()))
    }

    proptest! {
        /// Whoever has nothing here gets in or waits, however others behave; and nobody is sent away for the sake of who has as much.
        #[test]
        fn nobody_inside_keeps_newcomers_out(permits in 1..4_usize, queue in 0..8_usize, events in events()) {
            let mut gate = GateTurns::new(permits, queue);
            let (mut waiting, mut running) = (Vec::new(), Vec::new());
            for (id, event) in (1..).zip(events) {
                match event {
                    Event::Asks(number) => {
                        let tenant = format!("t{number}");
                        let own = gate.own(&tenant);
                        let asked = gate.ask(id, &tenant, MUCH);
                        prop_assert!(asked.is_ok() || own != Standing::default());
                        if let Some(out) = gate.displaced() {
                            let (_, loser): (u64, String) = waiting.remove(
                                waiting.iter().position(|(id, _)| *id == out).unwrap(),
                            );
                            prop_assert!(gate.own(&loser).queued >= gate.own(&tenant).queued);
                        }
                        if asked.is_ok() {
                            waiting.push((id, tenant));
                        }
                    }
                    Event::Leaves(number) => {
                        let left = picked(&mut waiting, number);
                        left.into_iter().for_each(|(id, _)| gate.leave(id));
                    }
                    Event::Ends(number) => {
                        let ended: Option<Arc<str>> = picked(&mut running, number);
                        ended.into_iter().for_each(|tenant| gate.give_back(&tenant, Duration::ZERO));
                    }
                }
                while let Some((id, tenant)) = gate.next(Instant::now()) {
                    waiting.retain(|(waits, _)| *waits != id);
                    running.push(tenant);
                }
                prop_assert_eq!(gate.standing().queued, waiting.len());
                prop_assert!(waiting.len() <= queue.max(12));
            }
        }
    }
}
