//! Connections by address: nobody at one address takes all places of a host.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bits of an IPv6 address that a provider gives to one customer; the other 64 are the customer's own to choose.
const CUSTOMER: u32 = 64;

/// What stands for everybody who can come from an address.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - CUSTOMER))).into()
        }
    }
}

/// How many connections each network has.
pub(super) struct Addresses {
    most: usize,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection that counts until this is dropped.
pub(super) struct Counted {
    addresses: Arc<Addresses>,
    network: IpAddr,
}

impl Addresses {
    /// Lets each network have `most` connections, at least one.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most: most.max(1),
            open: Mutex::default(),
        })
    }

    /// Counts a connection; `None` when its network has all it may.
    pub(super) fn count(self: &Arc<Self>, from: IpAddr) -> Option<Counted> {
        let network = network(from);
        let mut open = self.open();
        let connections = open.entry(network).or_default();
        if *connections >= self.most {
            return None;
        }
        *connections += 1;
        Some(Counted {
            addresses: Arc::clone(self),
            network,
        })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut open = self.addresses.open();
        if let Some(connections) = open.get_mut(&self.network) {
            *connections -= 1;
            if *connections == 0 {
                open.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_its_share_and_gets_it_back() {
        let addresses = Addresses::new(2);
        let here = address("192.0.2.1");
        let held: Vec<_> = (0..2).map(|_| addresses.count(here)).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(addresses.count(here).is_none());
        assert!(addresses.count(address("::ffff:192.0.2.1")).is_none());
        assert!(addresses.count(address("192.0.2.2")).is_some());
        drop(held);
        assert!(addresses.count(here).is_some());
        assert!(addresses.open().is_empty());
    }

    #[test]
    fn what_one_customer_can_choose_from_is_one_network() {
        assert_eq!(
            network(address("2001:db8:1:2:3:4:5:6")),
            address("2001:db8:1:2::")
        );
        assert_ne!(
            network(address("2001:db8:1:3::1")),
            network(address("2001:db8:1:2::1"))
        );
    }
}
