//! Permits of connections: who may have how many, and who goes when there are no more.
//!
//! A connection begins as a stranger's and becomes a tenant's with the first good token. Strangers have at most half of all permits, and
//! one of them goes when another comes beyond that: one of a network that crowds, else one that had its time to show a token. A tenant's
//! connection keeps its permit. A tenant has less than its address may have, for others may sit behind it.

use super::network::Network;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a stranger has to show its token before its permit may be another's: TLS and a request across the world take half a second.
const GRACE: Duration = Duration::from_secs(2);

/// The permits of one port.
pub(super) struct Permits {
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    /// In the order they came.
    taken: BTreeMap<u64, Taken>,
}

struct Taken {
    network: Network,
    /// Whose it is; `None` for a stranger's.
    tenant: Option<String>,
    leave: CancellationToken,
    since: Instant,
}

/// The right to be connected, until this is dropped or it is taken back.
pub(super) struct Permit {
    permits: Arc<Permits>,
    id: u64,
    leave: CancellationToken,
}

impl Permits {
    /// As many as `most`, at least four.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most: most.max(4),
            state: Mutex::default(),
        })
    }

    /// A permit for a stranger from `address`, where that needs it another stranger's. `None` when its network has all it may and all of
    /// that is tenants', or when nobody crowds and all strangers have just come.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Option<Permit> {
        let network = Network::of(address);
        let now = Instant::now();
        let mut state = self.state.lock();
        while let Some(crowd) = self.crowd(&state, network) {
            let id = state.oldest_stranger(crowd, now, self.most)?;
            if let Some(taken) = state.taken.remove(&id) {
                taken.leave.cancel();
            }
        }
        state.next += 1;
        let (id, leave) = (state.next, CancellationToken::new());
        let taken = Taken {
            network,
            tenant: None,
            leave: leave.clone(),
            since: now,
        };
        state.taken.insert(id, taken);
        Some(Permit {
            permits: Arc::clone(self),
            id,
            leave,
        })
    }

    /// What is full for a stranger from `network`, if anything is.
    fn crowd(&self, state: &State, network: Network) -> Option<Crowd> {
        let within = |crowd: Crowd| state.taken.values().filter(move |taken| crowd.has(taken)).count();
        let (customer, site) = (Crowd::Customer(network.customer), Crowd::Site(network.site));
        if within(customer) >= self.most / 2 {
            return Some(customer);
        }
        // Whole companies sit behind one /24 of private addresses.
        if network.site.is_ipv6() && within(site) >= self.most / 4 * 3 {
            return Some(site);
        }
        let strangers = state
            .taken
            .values()
            .filter(|taken| taken.tenant.is_none())
            .count();
        (strangers >= self.most / 2 || state.taken.len() >= self.most).then_some(Crowd::All)
    }

    /// Whether another permit may become this tenant's: three eighths of all at most, and an eighth of all stays for strangers, as whom everybody
    /// comes.
    fn may_be_of(&self, state: &State, tenant: &str) -> bool {
        let known = || state.taken.values().filter_map(|taken| taken.tenant.as_deref());
        let of_strangers = (self.most / 8).max(1);
        known().count() < self.most - of_strangers
            && known().filter(|name| *name == tenant).count() < self.most * 3 / 8
    }
}

/// Connections that are too many together.
#[derive(Debug, Clone, Copy)]
enum Crowd {
    Customer(IpAddr),
    Site(IpAddr),
    All,
}

impl Crowd {
    fn has(self, taken: &Taken) -> bool {
        match self {
            Self::Customer(address) => taken.network.customer == address,
            Self::Site(address) => taken.network.site == address,
            Self::All => true,
        }
    }
}

impl State {
    /// The oldest stranger of the customer that has the most of them, within the site that has the most: who crowds others out goes
    /// before them. Of a customer with a sixteenth of all permits, and a site with an eighth, none goes that has just come.
    fn oldest_stranger(&self, crowd: Crowd, now: Instant, most: usize) -> Option<u64> {
        let strangers = || self.taken.iter().filter(|(_, taken)| taken.tenant.is_none());
        let customers = counts(strangers().map(|(_, taken)| taken.network.customer));
        let sites = counts(strangers().map(|(_, taken)| taken.network.site));
        let crowds = |network: Network| {
            customers
                .get(&network.customer)
                .is_some_and(|count| *count > (most / 16).max(1))
                || sites
                    .get(&network.site)
                    .is_some_and(|count| *count > (most / 8).max(2))
        };
        let may_go = |taken: &Taken| {
            crowd.has(taken) && (now.duration_since(taken.since) >= GRACE || crowds(taken.network))
        };
        let there: Vec<_> = strangers().filter(|(_, taken)| may_go(taken)).collect();
        let site = most_frequent(there.iter().map(|(_, taken)| taken.network.site))?;
        let there = || there.iter().filter(|(_, taken)| taken.network.site == site);
        let customer = most_frequent(there().map(|(_, taken)| taken.network.customer))?;
        let mut theirs = there().filter(|(_, taken)| taken.network.customer == customer);
        theirs.next().map(|(id, _)| **id)
    }
}

fn counts(addresses: impl Iterator<Item = IpAddr>) -> HashMap<IpAddr, usize> {
    addresses.fold(HashMap::new(), |mut counts, address| {
        *counts.entry(address).or_default() += 1;
        counts
    })
}

/// The one that is there most often; of several the one that came first.
fn most_frequent(addresses: impl Iterator<Item = IpAddr>) -> Option<IpAddr> {
    let mut counts = HashMap::<IpAddr, (usize, usize)>::new();
    for (index, address) in addresses.enumerate() {
        counts.entry(address).or_insert((0, usize::MAX - index)).0 += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(address, _)| address)
}

impl Permit {
    /// A good token of this tenant was shown here.
    pub(super) fn known(&self, tenant: &str) {
        let mut state = self.permits.state.lock();
        let now = state.taken.get(&self.id).map(|taken| taken.tenant.as_deref());
        if now.is_some_and(|now| now != Some(tenant)) && self.permits.may_be_of(&state, tenant) {
            self.set(&mut state, Some(tenant.to_owned()));
        }
    }

    /// A bad token was shown here.
    pub(super) fn unknown(&self) {
        self.set(&mut self.permits.state.lock(), None);
    }

    fn set(&self, state: &mut State, tenant: Option<String>) {
        if let Some(taken) = state.taken.get_mut(&self.id) {
            taken.tenant = tenant;
        }
    }

    /// Whether it is a tenant's.
    pub(super) fn is_known(&self) -> bool {
        let state = self.permits.state.lock();
        state
            .taken
            .get(&self.id)
            .is_some_and(|taken| taken.tenant.is_some())
    }

    /// Ends when somebody else was given it.
    pub(super) async fn lost(&self) {
        self.leave.cancelled().await;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.state.lock().taken.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const HERE: &str = "192.0.2.1";

    fn come(permits: &Arc<Permits>, address: &str) -> Permit {
        permits.take(address.parse().unwrap()).unwrap()
    }

    fn gone(permit: &Permit) -> bool {
        permit.leave.is_cancelled()
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_from_anywhere_leave_half_to_tenants_and_a_newcomer_finds_room() {
        let permits = Permits::new(8);
        let mut many = Vec::new();
        for last in 0..100 {
            many.push(come(&permits, &format!("10.{last}.0.1")));
            advance(GRACE).await;
        }
        let staying = many.iter().filter(|permit| !gone(permit)).count();
        assert_eq!(staying, 4);
        let tenants: Vec<Permit> = (0..8)
            .map(|last| {
                let permit = come(&permits, &format!("10.200.0.{last}"));
                permit.known(["a", "b", "c"][last % 3]);
                permit
            })
            .collect();
        let known = tenants.iter().filter(|permit| permit.is_known()).count();
        assert_eq!(known, 7, "an eighth stays for those who come");
        advance(GRACE).await;
        let newcomer = come(&permits, "10.250.0.1");
        assert!(!gone(&newcomer));
        assert!(
            tenants
                .iter()
                .filter(|permit| permit.is_known())
                .all(|permit| !gone(permit))
        );
        assert_eq!(permits.state.lock().taken.len(), 8);
    }

    #[test]
    fn who_crowds_goes_before_others_who_are_older() {
        let permits = Permits::new(8);
        let quiet = come(&permits, "198.51.100.1");
        let beside = come(&permits, "192.0.2.2");
        let crowd: Vec<Permit> = (0..50).map(|_| come(&permits, HERE)).collect();
        assert!(!gone(&quiet) && !gone(&beside));
        assert!(gone(&crowd[0]) && !gone(&crowd[49]));
    }

    #[test]
    fn one_customer_has_half_and_a_site_three_quarters_whoever_they_are() {
        let permits = Permits::new(8);
        let tenant = |address: &str, name: &str| {
            let permit = come(&permits, address);
            permit.known(name);
            assert!(permit.is_known());
            permit
        };
        let first = ["a", "a", "c", "c"].map(|name| tenant("2001:db8:1:1::1", name));
        assert!(permits.take("2001:db8:1:1::2".parse().unwrap()).is_none());
        let second: Vec<Permit> = (0..2).map(|_| tenant("2001:db8:1:2::1", "b")).collect();
        assert!(permits.take("2001:db8:1:3::1".parse().unwrap()).is_none());
        assert!(permits.take("2001:db8:2:1::1".parse().unwrap()).is_some());
        drop((first, second));
        assert!(permits.state.lock().taken.is_empty());
        let older = come(&permits, "::ffff:192.0.2.1");
        let crowd: Vec<Permit> = (0..4).map(|_| come(&permits, HERE)).collect();
        assert!(gone(&older) && !gone(&crowd[3]), "its own oldest stranger goes");
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_just_come_keeps_its_permit_unless_its_own_network_crowds() {
        let permits = Permits::new(8);
        let slow = come(&permits, "198.51.100.1");
        let many: Vec<_> = (0..50)
            .map(|last| permits.take(format!("10.{last}.0.1").parse().unwrap()))
            .collect();
        advance(GRACE - Duration::from_millis(1)).await;
        assert!(permits.take("10.100.0.1".parse().unwrap()).is_none());
        assert!(!gone(&slow) && many[..3].iter().flatten().all(|permit| !gone(permit)));
        drop(many);
        let crowd: Vec<Permit> = (0..50)
            .map(|last| come(&permits, &format!("10.0.0.{last}")))
            .collect();
        assert!(!gone(&slow) && gone(&crowd[0]) && !gone(&crowd[49]));
        slow.known("a");
        assert!(slow.is_known());
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_leaves_others_at_its_address_room() {
        let permits = Permits::new(16);
        let known = |tenant: &str| {
            let permit = come(&permits, HERE);
            permit.known(tenant);
            permit
        };
        let first: Vec<Permit> = (0..20).map(|_| known("a")).collect();
        assert_eq!(first.iter().filter(|permit| permit.is_known()).count(), 6);
        advance(GRACE).await;
        let second = [known("b"), known("b")];
        assert!(second.iter().all(Permit::is_known));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_has_three_eighths_of_all_and_a_bad_token_makes_a_stranger() {
        let permits = Permits::new(8);
        let mut many = Vec::new();
        for last in 0..5 {
            many.push(come(&permits, &format!("10.0.{last}.1")));
            advance(GRACE).await;
        }
        // The first has lost its permit to the fifth.
        assert!(gone(&many[0]));
        let more: Vec<Permit> = many[1..]
            .iter()
            .map(|permit| permit.known("a"))
            .map(|()| come(&permits, HERE))
            .collect();
        more.iter().for_each(|permit| permit.known("a"));
        assert!(more.iter().all(|permit| !permit.is_known()));
        assert_eq!(many.iter().filter(|permit| permit.is_known()).count(), 3);
        more[3].known("b");
        assert!(more[3].is_known());
        more[3].unknown();
        assert!(!more[3].is_known());
        many[0].known("b");
        assert!(!many[0].is_known(), "who has lost it gets no other by a token");
    }
}
