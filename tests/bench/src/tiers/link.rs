use super::namespace::Namespace;
use super::quiet;
use anyhow::{Context, Result};
use std::net::Ipv4Addr;
use std::process::Command;

/// A pair of virtual Ethernet devices between the trainer and the namespace, with a rate limit in both
/// directions.
pub(crate) struct Link {
    /// Device of the trainer. The other device is in the namespace.
    near: String,
    far: String,
    namespace: u32,
    host: Ipv4Addr,
}

impl Link {
    pub(super) fn open(namespace: &Namespace) -> Result<Self> {
        let id = std::process::id();
        let [trainer, host] = addresses(id);
        let link = Self {
            near: format!("fl{id}"),
            far: format!("fl{id}h"),
            namespace: namespace.id(),
            host,
        };
        let (near, far) = (link.near.as_str(), link.far.as_str());
        let holder = namespace.id().to_string();
        let [near_station, far_station] = stations(id);
        let (trainer_address, host_address) = (trainer.to_string(), host.to_string());
        ip(&[
            "link",
            "add",
            near,
            "address",
            &near_station,
            "type",
            "veth",
            "peer",
            "name",
            far,
            "address",
            &far_station,
            "netns",
            &holder,
        ])?;
        ip(&["addr", "add", &format!("{trainer}/30"), "dev", near])?;
        ip(&["link", "set", near, "up"])?;
        // Permanent neighbor entries: ARP requests might be lost in a full queue.
        ip(&[
            "neigh",
            "replace",
            &host_address,
            "lladdr",
            &far_station,
            "dev",
            near,
            "nud",
            "permanent",
        ])?;
        for arguments in [
            &["addr", "add", &format!("{host}/30"), "dev", far][..],
            &["link", "set", far, "up"],
            &["link", "set", "lo", "up"],
            &[
                "neigh",
                "replace",
                &trainer_address,
                "lladdr",
                &near_station,
                "dev",
                far,
                "nud",
                "permanent",
            ],
        ] {
            quiet(namespace.enter().arg("ip").args(arguments))?;
        }
        Ok(link)
    }

    /// Address of the storage side.
    pub(super) fn host_address(&self) -> Ipv4Addr {
        self.host
    }

    /// Limits each direction to a rate in Mbit/s, or removes the limit. Queued packets are lost.
    ///
    /// Token buckets are always rebuilt instead of changed: a queued segment may be larger than the new
    /// bucket and would block it permanently.
    pub(crate) fn hold(&self, mbit: Option<f64>) -> Result<()> {
        let target = format!("--target={}", self.namespace);
        for shape in [Some(vec!["pfifo".to_owned()]), mbit.map(shape)]
            .into_iter()
            .flatten()
        {
            quiet(Command::new("tc").args(replace(&self.near)).args(&shape))?;
            let mut inside = Command::new("nsenter");
            inside.args([&target, "--net", "tc"]);
            quiet(inside.args(replace(&self.far)).args(&shape))?;
        }
        Ok(())
    }

    /// Bytes received by the trainer so far, including headers.
    pub(crate) fn received(&self) -> Result<u64> {
        let file = format!("/sys/class/net/{}/statistics/rx_bytes", self.near);
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
        Ok(text.trim().parse()?)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = ip(&["link", "delete", &self.near]);
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    quiet(Command::new("ip").args(arguments))
}

fn replace(device: &str) -> [&str; 5] {
    ["qdisc", "replace", "dev", device, "root"]
}

/// Token bucket for a rate. The burst is 4 ms (one tick of a common kernel) or ten packets, whichever is
/// larger. The queue holds up to 50 ms of packets, enough for a single TCP connection to fill the link.
fn shape(mbit: f64) -> Vec<String> {
    let burst = (mbit * 1e6 / 8.0 * 0.004).max(16_384.0);
    let parts = [
        "tbf",
        "rate",
        &format!("{:.0}bit", mbit * 1e6),
        "burst",
        &format!("{burst:.0}"),
        "latency",
        "50ms",
    ];
    parts.map(str::to_owned).to_vec()
}

/// Two addresses of a /30 network in 198.18.0.0/15, which RFC 2544 reserves for benchmarks, derived from the
/// process id.
fn addresses(id: u32) -> [Ipv4Addr; 2] {
    let base = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + id % (1 << 15) * 4;
    [Ipv4Addr::from(base + 1), Ipv4Addr::from(base + 2)]
}

/// Locally administered MAC addresses of the two ends.
fn stations(id: u32) -> [String; 2] {
    let [a, b, c, d] = id.to_be_bytes();
    ["01", "02"].map(|end| format!("02:{a:02x}:{b:02x}:{c:02x}:{d:02x}:{end}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stations_are_distinct_unicast_addresses() {
        assert_eq!(stations(0x0102_03ff), ["02:01:02:03:ff:01", "02:01:02:03:ff:02"]);
    }

    #[test]
    fn addresses_lie_in_one_small_network_kept_for_benchmarks() {
        assert_eq!(
            addresses(0),
            [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)]
        );
        let [trainer, host] = addresses(u32::MAX);
        assert_eq!(host, Ipv4Addr::new(198, 19, 255, 254));
        assert_eq!(u32::from(trainer) & !3, u32::from(host) & !3);
    }

    #[test]
    fn slow_links_have_room_for_packets_and_fast_ones_for_a_tick() {
        let burst = |mbit| shape(mbit).get(4).cloned();
        assert_eq!(burst(5.0).as_deref(), Some("16384"));
        assert_eq!(burst(500.0).as_deref(), Some("250000"));
    }
}
