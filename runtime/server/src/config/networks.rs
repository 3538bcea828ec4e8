//! IP networks in CIDR notation.

use super::error::ConfigError;
use std::net::IpAddr;

/// List of IP addresses and networks, such as `10.0.0.0/8`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks(Vec<(IpAddr, u32)>);

impl Networks {
    /// Parses addresses and networks. A network is an address with a prefix length.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError::Value`] for text that is neither.
    pub(crate) fn parse(texts: &[String]) -> Result<Self, ConfigError> {
        let parsed = texts.iter().map(|text| {
            network(text).ok_or_else(|| ConfigError::Value {
                key: "proxy_protocol_from",
                value: format!("{text:?}"),
                rule: "expected an address or a network, such as 10.0.0.1 or 10.0.0.0/8".to_owned(),
            })
        });
        parsed.collect::<Result<_, _>>().map(Self)
    }

    /// Returns true if a network contains the address. IPv4-mapped IPv6 addresses match IPv4 networks.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let mut networks = self.0.iter();
        networks.any(|(network, bits)| match (address, network) {
            (IpAddr::V4(address), IpAddr::V4(network)) => {
                let differ = address.to_bits() ^ network.to_bits();
                differ.leading_zeros() >= *bits
            }
            (IpAddr::V6(address), IpAddr::V6(network)) => {
                let differ = address.to_bits() ^ network.to_bits();
                differ.leading_zeros() >= *bits
            }
            _ => false,
        })
    }
}

fn network(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = text
        .split_once('/')
        .map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Ok(most), str::parse).ok()?;
    (bits <= most).then_some((address, bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_only_its_addresses() {
        let networks = ["10.0.0.0/8", "192.0.2.1", "fd00::/8"].map(str::to_owned);
        let networks = Networks::parse(&networks).unwrap();
        let contains = |text: &str| networks.contains(text.parse().unwrap());
        for inside in ["10.255.0.1", "192.0.2.1", "::ffff:10.0.0.1", "fdff::1"] {
            assert!(contains(inside), "{inside}");
        }
        for outside in ["11.0.0.1", "192.0.2.2", "fe80::1", "::1"] {
            assert!(!contains(outside), "{outside}");
        }
        assert!(!Networks::default().contains(IpAddr::from([0, 0, 0, 0])));
        for wrong in ["", "10.0.0.0/33", "proxy", "10.0.0.0/x"] {
            assert!(Networks::parse(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }
}
