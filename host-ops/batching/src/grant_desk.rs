use crate::grants::Grants;
use crate::waiters::{Held, Waiters};
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Where extractions wait for their next grant.
pub type GrantDesk = Waiters<Grants>;

/// Samples that a call holds; dropping it gives them back.
pub type Grant = Held<Grants>;

impl GrantDesk {
    /// Waits for the next grant of an extraction that has `samples` left; `None` for none left.
    pub async fn next(self: &Arc<Self>, tenant: &str, samples: usize) -> Option<Grant> {
        let Ok(waiting) = self.ask(tenant, NonZeroUsize::new(samples)?);
        waiting.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GrantRules;
    use futures::poll;

    fn desk(grant: usize, samples: usize) -> Arc<GrantDesk> {
        let rules = GrantRules {
            samples: grant,
            ..GrantRules::default()
        };
        GrantDesk::new(Grants::new(rules, samples))
    }

    fn held(desk: &Arc<GrantDesk>, tenant: &str) -> usize {
        desk.with_policy(|grants| grants.held_by(tenant))
    }

    #[tokio::test]
    async fn grants_wait_for_room_and_come_when_one_is_given_back() {
        let desk = desk(4, 8);
        let first = desk.next("t", 100).await.unwrap();
        let second = desk.next("t", 3).await.unwrap();
        assert_eq!((first.samples, second.samples), (4, 3));
        let mut third = Box::pin(desk.next("t", 100));
        assert!(poll!(&mut third).is_pending());
        drop(first);
        assert_eq!(third.await.unwrap().samples, 4);
        assert_eq!(held(&desk, "t"), 3);
    }

    #[tokio::test]
    async fn who_leaves_is_forgotten_and_nothing_is_lost() {
        let desk = desk(4, 4);
        let first = desk.next("t", 4).await.unwrap();
        let mut second = Box::pin(desk.next("t", 4));
        assert!(poll!(&mut second).is_pending());
        drop(second);
        assert!(desk.with_policy(|grants| grants.waiting.is_empty()));
        drop(first);
        assert_eq!(held(&desk, "t"), 0);
        assert!(desk.next("t", 0).await.is_none());
        assert_eq!(desk.next("t", 9).await.unwrap().samples, 4);
    }

    #[tokio::test]
    async fn who_leaves_keeps_nobody_waiting_who_stood_behind_it() {
        let desk = desk(4, 10);
        let held = [desk.next("greedy", 9).await, desk.next("greedy", 9).await];
        let mut large = Box::pin(desk.next("modest", 4));
        let mut small = Box::pin(desk.next("greedy", 1));
        assert!(poll!(&mut large).is_pending() && poll!(&mut small).is_pending());
        drop(large);
        assert!(poll!(&mut small).is_ready(), "there was room for it all along");
        drop(held);
    }

    #[tokio::test]
    async fn what_a_tenant_gives_back_between_two_calls_is_not_collected_by_one_whose_calls_take_long() {
        let desk = desk(4, 16);
        let mut long = Vec::new();
        for _ in 0..4 {
            long.push(desk.next("greedy", 100).await.unwrap());
        }
        let mut more = Box::pin(desk.next("greedy", 100));
        let mut first = Box::pin(desk.next("modest", 100));
        let mut second = Box::pin(desk.next("modest", 100));
        assert!(poll!(&mut more).is_pending());
        assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
        long.truncate(2);
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        drop(first);
        assert!(poll!(&mut more).is_pending());
        let again = desk.next("modest", 100).await.unwrap();
        assert_eq!(held(&desk, "greedy"), 8);
        drop((second, again));
        assert_eq!(more.await.unwrap().samples, 4, "nobody else is there any more");
    }
}
