//! Limits on the number of connections per client, and on connections without a valid token.
//!
//! A connection is a stranger's until the first valid token, and then belongs to the tenant. Strangers have
//! up to half of all permits. If a new stranger exceeds this limit, an existing stranger loses a permit. This
//! is preferably a stranger from a network with many of them, otherwise one that had enough time to send a
//! token. Tenants never lose a permit to others. The limit for a tenant is lower than the limit for an
//! address, because other tenants may have the same address.

use super::network::Network;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time for a stranger to send a token before the permit can be given to another client. TLS and a request
/// across the world need half a second.
const GRACE: Duration = Duration::from_secs(2);

/// Permits of one port.
pub(super) struct Permits {
    limit: usize,
    /// Counts refused connections and revoked permits.
    refused: Counter,
    state: Mutex<ConnectionTable>,
}

#[derive(Default)]
struct ConnectionTable {
    last_id: u64,
    /// Open connections in the order of arrival.
    connected: BTreeMap<u64, Connected>,
}

struct Connected {
    network: Network,
    /// Tenant of the connection. `None` for a stranger.
    tenant: Option<String>,
    revoke: CancellationToken,
    since: Instant,
}

/// Right to have a connection. Dropping it frees the place, and it may also be revoked.
pub(super) struct ConnectionPermit {
    permits: Arc<Permits>,
    id: u64,
    revoke: CancellationToken,
}

impl Permits {
    /// Creates `limit` permits, with a minimum of four. `refused` counts the connections without one.
    pub(super) fn new(limit: usize, refused: Counter) -> Arc<Self> {
        Arc::new(Self {
            limit: limit.max(4),
            refused,
            state: Mutex::default(),
        })
    }

    /// Returns a permit for a stranger from `address`, if necessary by revoking the permit of another
    /// stranger. Returns `None` if all permits of the network belong to tenants, or if all strangers are new
    /// and none of their networks has too many.
    pub(super) fn acquire(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPermit> {
        let network = Network::from_address(address);
        let now = Instant::now();
        let mut state = self.state.lock();
        while let Some(scope) = self.full_scope(&state, network) {
            // Either this connection or another one is refused.
            self.refused.inc();
            let id = state.oldest_stranger(scope, now, self.limit)?;
            if let Some(taken) = state.connected.remove(&id) {
                taken.revoke.cancel();
            }
        }
        state.last_id += 1;
        let id = state.last_id;
        let revoke = CancellationToken::new();
        let taken = Connected {
            network,
            tenant: None,
            revoke: revoke.clone(),
            since: now,
        };
        state.connected.insert(id, taken);
        Some(ConnectionPermit {
            permits: Arc::clone(self),
            id,
            revoke,
        })
    }

    /// Returns the limit that a stranger from `network` would exceed, if any.
    fn full_scope(&self, state: &ConnectionTable, network: Network) -> Option<Scope> {
        let customer = Scope::Customer(network.customer);
        let site = Scope::Site(network.site);
        if state.count_in(customer) >= self.limit / 2 {
            return Some(customer);
        }
        // IPv4 sites have no limit, because a whole company can share a /24 of private addresses.
        if network.site.is_ipv6() && state.count_in(site) >= self.limit / 4 * 3 {
            return Some(site);
        }
        let strangers = state.strangers().count();
        (strangers >= self.limit / 2 || state.connected.len() >= self.limit).then_some(Scope::All)
    }

    /// Returns true if another permit may be assigned to the tenant. A tenant can have up to three eighths of
    /// all permits. An eighth is always left for strangers, because every connection starts as a stranger's.
    fn may_assign(&self, state: &ConnectionTable, tenant: &str) -> bool {
        let known = state
            .connected
            .values()
            .filter_map(|taken| taken.tenant.as_deref());
        let of_strangers = (self.limit / 8).max(1);
        known.clone().count() < self.limit - of_strangers
            && known.filter(|name| *name == tenant).count() < self.limit * 3 / 8
    }
}

/// Group of connections with a common limit.
#[derive(Debug, Clone, Copy)]
enum Scope {
    Customer(IpAddr),
    Site(IpAddr),
    All,
}

impl Scope {
    fn contains(self, taken: &Connected) -> bool {
        match self {
            Self::Customer(address) => taken.network.customer == address,
            Self::Site(address) => taken.network.site == address,
            Self::All => true,
        }
    }
}

impl ConnectionTable {
    /// Returns the oldest stranger in the largest customer network of the largest site, counted by strangers
    /// that may be revoked. A new stranger is protected by [`GRACE`] unless the customer network has more
    /// than a sixteenth of all permits or the site has more than an eighth.
    fn oldest_stranger(&self, scope: Scope, now: Instant, limit: usize) -> Option<u64> {
        let customers = counts(self.strangers().map(|(_, taken)| taken.network.customer));
        let sites = counts(self.strangers().map(|(_, taken)| taken.network.site));
        let candidates = self.strangers().filter(|(_, taken)| {
            let Network { customer, site } = taken.network;
            scope.contains(taken)
                && (now.duration_since(taken.since) >= GRACE
                    || exceeds(&customers, customer, (limit / 16).max(1))
                    || exceeds(&sites, site, (limit / 8).max(2)))
        });
        let candidates: Vec<_> = candidates.collect();
        let site = most_frequent(candidates.iter().map(|(_, taken)| taken.network.site))?;
        let in_site = candidates.iter().filter(|(_, taken)| taken.network.site == site);
        let customer = most_frequent(in_site.clone().map(|(_, taken)| taken.network.customer))?;
        let mut in_customer = in_site.filter(|(_, taken)| taken.network.customer == customer);
        in_customer.next().map(|(id, _)| **id)
    }

    /// Returns the connections of strangers in the order of arrival.
    fn strangers(&self) -> impl Iterator<Item = (&u64, &Connected)> {
        self.connected.iter().filter(|(_, taken)| taken.tenant.is_none())
    }

    fn count_in(&self, scope: Scope) -> usize {
        self.connected
            .values()
            .filter(|taken| scope.contains(taken))
            .count()
    }
}

fn counts(addresses: impl Iterator<Item = IpAddr>) -> HashMap<IpAddr, usize> {
    addresses.fold(HashMap::new(), |mut counts, address| {
        *counts.entry(address).or_default() += 1;
        counts
    })
}

/// Returns true if an address occurs more than `limit` times.
fn exceeds(counts: &HashMap<IpAddr, usize>, address: IpAddr, limit: usize) -> bool {
    counts.get(&address).is_some_and(|count| *count > limit)
}

/// Returns the most frequent address. On a tie, returns the address that occurs first.
fn most_frequent(addresses: impl Iterator<Item = IpAddr>) -> Option<IpAddr> {
    let mut counts = HashMap::<IpAddr, (usize, usize)>::new();
    for (index, address) in addresses.enumerate() {
        counts.entry(address).or_insert((0, usize::MAX - index)).0 += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(address, _)| address)
}

impl ConnectionPermit {
    /// Assigns the permit to the tenant after a valid token, if the limits allow it.
    pub(super) fn assign_tenant(&self, tenant: &str) {
        let mut state = self.permits.state.lock();
        let now = state.connected.get(&self.id).map(|taken| taken.tenant.as_deref());
        if now.is_some_and(|now| now != Some(tenant)) && self.permits.may_assign(&state, tenant) {
            self.set_tenant(&mut state, Some(tenant.to_owned()));
        }
    }

    /// Returns the permit to the strangers after an invalid token.
    pub(super) fn clear_tenant(&self) {
        self.set_tenant(&mut self.permits.state.lock(), None);
    }

    fn set_tenant(&self, state: &mut ConnectionTable, tenant: Option<String>) {
        if let Some(taken) = state.connected.get_mut(&self.id) {
            taken.tenant = tenant;
        }
    }

    /// Returns true if the permit belongs to a tenant.
    pub(super) fn has_tenant(&self) -> bool {
        let state = self.permits.state.lock();
        state
            .connected
            .get(&self.id)
            .is_some_and(|taken| taken.tenant.is_some())
    }

    /// Completes when the permit is revoked.
    pub(super) async fn revoked(&self) {
        self.revoke.cancelled().await;
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.permits.state.lock().connected.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const HERE: &str = "192.0.2.1";

    fn connect(permits: &Arc<Permits>, address: &str) -> ConnectionPermit {
        permits.acquire(address.parse().unwrap()).unwrap()
    }

    fn is_revoked(permit: &ConnectionPermit) -> bool {
        permit.revoke.is_cancelled()
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_from_anywhere_leave_half_to_tenants_and_a_newcomer_finds_room() {
        let permits = Permits::new(8, Counter::default());
        let mut many = Vec::new();
        for last in 0..100 {
            many.push(connect(&permits, &format!("10.{last}.0.1")));
            advance(GRACE).await;
        }
        let staying = many.iter().filter(|permit| !is_revoked(permit)).count();
        assert_eq!(staying, 4);
        let tenants: Vec<ConnectionPermit> = (0..8)
            .map(|last| {
                let permit = connect(&permits, &format!("10.200.0.{last}"));
                permit.assign_tenant(["a", "b", "c"][last % 3]);
                permit
            })
            .collect();
        let known = tenants.iter().filter(|permit| permit.has_tenant()).count();
        assert_eq!(known, 7, "an eighth is left for strangers");
        advance(GRACE).await;
        let newcomer = connect(&permits, "10.250.0.1");
        assert!(!is_revoked(&newcomer));
        assert!(
            tenants
                .iter()
                .filter(|permit| permit.has_tenant())
                .all(|permit| !is_revoked(permit))
        );
        assert_eq!(permits.state.lock().connected.len(), 8);
    }

    #[test]
    fn a_crowding_network_loses_permits_before_older_strangers() {
        let permits = Permits::new(8, Counter::default());
        let quiet = connect(&permits, "198.51.100.1");
        let beside = connect(&permits, "192.0.2.2");
        let crowd: Vec<ConnectionPermit> = (0..50).map(|_| connect(&permits, HERE)).collect();
        assert!(!is_revoked(&quiet) && !is_revoked(&beside));
        assert!(is_revoked(&crowd[0]) && !is_revoked(&crowd[49]));
        let revoked = crowd.iter().filter(|permit| is_revoked(permit)).count();
        assert_eq!(permits.refused.get(), revoked as u64);
    }

    #[test]
    fn limits_of_customers_and_sites_include_tenants() {
        let permits = Permits::new(8, Counter::default());
        let tenant = |address: &str, name: &str| {
            let permit = connect(&permits, address);
            permit.assign_tenant(name);
            assert!(permit.has_tenant());
            permit
        };
        let first = ["a", "a", "c", "c"].map(|name| tenant("2001:db8:1:1::1", name));
        assert!(permits.acquire("2001:db8:1:1::2".parse().unwrap()).is_none());
        let second: Vec<ConnectionPermit> = (0..2).map(|_| tenant("2001:db8:1:2::1", "b")).collect();
        assert!(permits.acquire("2001:db8:1:3::1".parse().unwrap()).is_none());
        assert!(permits.acquire("2001:db8:2:1::1".parse().unwrap()).is_some());
        drop((first, second));
        assert!(permits.state.lock().connected.is_empty());
        let older = connect(&permits, "::ffff:192.0.2.1");
        let crowd: Vec<ConnectionPermit> = (0..4).map(|_| connect(&permits, HERE)).collect();
        assert!(
            is_revoked(&older) && !is_revoked(&crowd[3]),
            "the oldest stranger of the same network is revoked"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_stranger_is_protected_unless_its_network_crowds() {
        let permits = Permits::new(8, Counter::default());
        let slow = connect(&permits, "198.51.100.1");
        let many: Vec<_> = (0..50)
            .map(|last| permits.acquire(format!("10.{last}.0.1").parse().unwrap()))
            .collect();
        advance(GRACE - Duration::from_millis(1)).await;
        assert!(permits.acquire("10.100.0.1".parse().unwrap()).is_none());
        assert!(!is_revoked(&slow) && many[..3].iter().flatten().all(|permit| !is_revoked(permit)));
        drop(many);
        let crowd: Vec<ConnectionPermit> = (0..50)
            .map(|last| connect(&permits, &format!("10.0.0.{last}")))
            .collect();
        assert!(!is_revoked(&slow) && is_revoked(&crowd[0]) && !is_revoked(&crowd[49]));
        slow.assign_tenant("a");
        assert!(slow.has_tenant());
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_leaves_others_at_its_address_room() {
        let permits = Permits::new(16, Counter::default());
        let known = |tenant: &str| {
            let permit = connect(&permits, HERE);
            permit.assign_tenant(tenant);
            permit
        };
        let first: Vec<ConnectionPermit> = (0..20).map(|_| known("a")).collect();
        assert_eq!(first.iter().filter(|permit| permit.has_tenant()).count(), 6);
        advance(GRACE).await;
        let second = [known("b"), known("b")];
        assert!(second.iter().all(ConnectionPermit::has_tenant));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_has_three_eighths_of_all_and_a_bad_token_makes_a_stranger() {
        let permits = Permits::new(8, Counter::default());
        let mut many = Vec::new();
        for last in 0..5 {
            many.push(connect(&permits, &format!("10.0.{last}.1")));
            advance(GRACE).await;
        }
        // The fifth connection has revoked the first.
        assert!(is_revoked(&many[0]));
        let more: Vec<ConnectionPermit> = many[1..]
            .iter()
            .map(|permit| permit.assign_tenant("a"))
            .map(|()| connect(&permits, HERE))
            .collect();
        more.iter().for_each(|permit| permit.assign_tenant("a"));
        assert!(more.iter().all(|permit| !permit.has_tenant()));
        assert_eq!(many.iter().filter(|permit| permit.has_tenant()).count(), 3);
        more[3].assign_tenant("b");
        assert!(more[3].has_tenant());
        more[3].clear_tenant();
        assert!(!more[3].has_tenant());
        many[0].assign_tenant("b");
        assert!(!many[0].has_tenant(), "a token does not restore a revoked permit");
    }
}
