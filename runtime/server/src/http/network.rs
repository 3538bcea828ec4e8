//! Networks that an address belongs to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Networks of an address with two prefix lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Network {
    /// Smallest network: a single IPv4 address, or an IPv6 /64. Customers can choose any address in their
    /// /64.
    pub(super) customer: IpAddr,
    /// Larger network: an IPv4 /24 or an IPv6 /48. Providers assign a /48 to customers on request.
    pub(super) site: IpAddr,
}

impl Network {
    pub(super) fn from_address(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self {
                customer: address.into(),
                site: Ipv4Addr::from_bits(address.to_bits() & (u32::MAX << 8)).into(),
            },
            IpAddr::V6(address) => Self {
                customer: first_bits(address, 64).into(),
                site: first_bits(address, 48).into(),
            },
        }
    }
}

fn first_bits(address: Ipv6Addr, bits: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - bits)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        Network::from_address(text.parse().unwrap())
    }

    #[test]
    fn what_one_customer_can_choose_from_is_one_network() {
        let here = network("2001:db8:1:2:3:4:5:6");
        assert_eq!(here.customer.to_string(), "2001:db8:1:2::");
        assert_eq!(here.site.to_string(), "2001:db8:1::");
        let beside = network("2001:db8:1:3::1");
        assert_ne!(here.customer, beside.customer);
        assert_eq!(here.site, beside.site);
        assert_ne!(here.site, network("2001:db8:2:2::1").site);
    }

    #[test]
    fn an_ipv4_address_is_the_same_however_it_is_written() {
        let here = network("192.0.2.7");
        assert_eq!(here, network("::ffff:192.0.2.7"));
        assert_eq!(here.customer.to_string(), "192.0.2.7");
        assert_eq!(here.site.to_string(), "192.0.2.0");
    }
}
