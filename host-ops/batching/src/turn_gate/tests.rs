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

/// Returns a permit if one is available immediately.
fn now(gate: &Arc<TurnGate>, tenant: &str) -> Option<Permit> {
    let entered = gate.enter(tenant, Share::Adaptive).now_or_never();
    entered.map(Result::unwrap)
}

async fn refused(gate: &Arc<TurnGate>, tenant: &str, share: Share) -> EnterError {
    gate.enter(tenant, share).await.map(drop).unwrap_err()
}

#[tokio::test]
async fn one_at_a_time_and_the_tenant_that_had_less_first() {
    let gate = halving(1);
    let enter = |tenant| Box::pin(gate.enter(tenant, Share::Adaptive));
    let first = enter("greedy").await.unwrap();
    let mut greedy = enter("greedy");
    let mut modest = enter("modest");
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
    let second = most("second");
    let third = most("third");
    assert_eq!([first.len(), second.len(), third.len()], [16, 8, 4]);
    let newcomer = now(&gate, "newcomer");
    assert!(newcomer.is_some());
    drop((second, third, newcomer));
    assert!(now(&gate, "first").is_none(), "half of the permits are in use");
    drop(first);
    assert_eq!(most("first").len(), 16);
}

#[tokio::test]
async fn who_gives_up_holds_nobody_up_and_is_forgotten_at_once() {
    let gate = halving(1);
    let enter = || Box::pin(gate.enter("a", Share::Adaptive));
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
    assert!(gate.standings().is_empty(), "inactive tenants are forgotten");
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
    // The permit was sent, but the receiver is dropped.
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
    let one = enter("a").await.unwrap();
    let two = enter("a").await.unwrap();
    let mut more = enter("a");
    let mut other = enter("b");
    assert!(poll!(&mut more).is_pending() && poll!(&mut other).is_pending());
    drop(one);
    let other = other.await.unwrap();
    assert!(poll!(&mut more).is_pending());
    // Both tenants have one permit, but a used two for a while.
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
    // The newest requests were displaced. Repeated requests are refused.
    for waiting in greedy.split_off(2) {
        assert!(matches!(waiting.await, Err(EnterError::Full(_))));
    }
    for tenant in ["greedy", "modest"] {
        assert!(matches!(refused(&gate, tenant, MUCH).await, EnterError::Full(_)));
    }
    drop(first);
    assert!(
        modest.remove(0).await.is_ok(),
        "this tenant has the fewest permits"
    );
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
    /// A tenant without requests is always accepted, regardless of other tenants. Displacement requires fewer
    /// entries than the displaced tenant.
    #[test]
    fn nobody_inside_keeps_newcomers_out(permits in 1..4_usize, queue in 0..8_usize, events in events()) {
        let mut gate = GateTurns::new(permits, queue);
        let mut waiting = Vec::new();
        let mut running = Vec::new();
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
            while let Some((id, tenant)) = gate.next() {
                waiting.retain(|(waits, _)| *waits != id);
                running.push(tenant);
            }
            prop_assert_eq!(gate.standing().queued, waiting.len());
            prop_assert!(waiting.len() <= queue.max(12));
        }
    }
}
