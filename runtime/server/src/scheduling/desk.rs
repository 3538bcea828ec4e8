//! Hands grants to extractions as [`Grants`] decides, and takes them back.

use frostline_batching::{Budget, Decision, Grants, Holder, Waiting};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::oneshot;

/// Where extractions ask for their next grant.
pub(crate) struct GrantDesk {
    grants: Grants,
    /// Samples that all calls on this host may hold.
    samples: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    waiting: HashMap<u64, Asking>,
    /// Of tenants that hold any.
    held: HashMap<String, Held>,
}

#[derive(Default)]
struct Held {
    samples: usize,
    most: usize,
}

struct Asking {
    tenant: String,
    samples: usize,
    since: Instant,
    answer: oneshot::Sender<Grant>,
}

/// Samples a call may hold until a deadline; dropping it gives them back.
pub(crate) struct Grant {
    pub(crate) samples: usize,
    pub(crate) until: Instant,
    tenant: String,
    desk: Arc<GrantDesk>,
}

/// Takes a request back that nobody waits for any more.
struct Withdraw<'a>(&'a GrantDesk, u64);

impl GrantDesk {
    pub(crate) fn new(grants: Grants, samples: usize) -> Arc<Self> {
        Arc::new(Self {
            grants,
            samples,
            state: Mutex::default(),
        })
    }

    /// Waits for the next grant of an extraction that has `samples` left; `None` for none left.
    pub(crate) async fn next(self: &Arc<Self>, tenant: &str, samples: usize) -> Option<Grant> {
        let (answer, granted) = oneshot::channel();
        let id = {
            let mut state = self.state();
            state.next += 1;
            let id = state.next;
            state.waiting.insert(
                id,
                Asking {
                    tenant: tenant.to_owned(),
                    samples,
                    since: Instant::now(),
                    answer,
                },
            );
            id
        };
        let _withdraw = Withdraw(self, id);
        self.decide();
        if samples == 0 { None } else { granted.await.ok() }
    }

    /// Gives out all that can be given now.
    fn decide(self: &Arc<Self>) {
        let mut refused = Vec::new();
        let mut state = self.state();
        while let Some((asking, samples, until)) = self.choose(&mut state) {
            let held = state.held.entry(asking.tenant.clone()).or_default();
            held.samples += samples;
            held.most = held.most.max(held.samples);
            let grant = Grant {
                samples,
                until,
                tenant: asking.tenant,
                desk: Arc::clone(self),
            };
            refused.extend(asking.answer.send(grant).err());
        }
        drop(state);
        // Dropping a grant asks for the lock again.
        drop(refused);
    }

    fn choose(&self, state: &mut State) -> Option<(Asking, usize, Instant)> {
        let held: Vec<Holder<'_>> = state
            .held
            .iter()
            .map(|(tenant, held)| Holder {
                tenant,
                samples: held.samples,
                most: held.most,
            })
            .collect();
        let waiting: Vec<Waiting<'_>> = state
            .waiting
            .iter()
            .map(|(id, asking)| Waiting {
                extraction: *id,
                tenant: &asking.tenant,
                samples: asking.samples,
                since: asking.since,
            })
            .collect();
        let budget = Budget {
            samples: self.samples,
            held: &held,
        };
        let Decision::Grant {
            extraction,
            samples,
            until,
        } = self.grants.next(Instant::now(), &waiting, &budget)
        else {
            return None;
        };
        state
            .waiting
            .remove(&extraction)
            .map(|asking| (asking, samples, until))
    }

    fn give_back(self: &Arc<Self>, tenant: &str, samples: usize) {
        let mut state = self.state();
        if let Some(held) = state.held.get_mut(tenant) {
            held.samples = held.samples.saturating_sub(samples);
            if held.samples == 0 {
                state.held.remove(tenant);
            }
        }
        drop(state);
        self.decide();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.desk.give_back(&self.tenant, self.samples);
    }
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        self.0.state().waiting.remove(&self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_batching::GrantRules;
    use futures::poll;

    fn desk(grant: usize, samples: usize) -> Arc<GrantDesk> {
        GrantDesk::new(
            Grants::new(GrantRules {
                samples: grant,
                ..GrantRules::default()
            }),
            samples,
        )
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
        assert_eq!(desk.state().held["t"].samples, 3);
    }

    #[tokio::test]
    async fn who_leaves_is_forgotten_and_nothing_is_lost() {
        let desk = desk(4, 4);
        let first = desk.next("t", 4).await.unwrap();
        let mut second = Box::pin(desk.next("t", 4));
        assert!(poll!(&mut second).is_pending());
        drop(second);
        assert!(desk.state().waiting.is_empty());
        drop(first);
        assert!(desk.state().held.is_empty());
        assert!(desk.next("t", 0).await.is_none());
        assert_eq!(desk.next("t", 9).await.unwrap().samples, 4);
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
        assert_eq!(desk.state().held["greedy"].samples, 8);
        drop((second, again));
        assert_eq!(more.await.unwrap().samples, 4, "nobody else is there any more");
    }
}
