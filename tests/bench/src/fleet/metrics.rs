//! Metrics from a host's `/metrics`.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Metric values by name and labels.
#[derive(Debug, Clone)]
pub(crate) struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    pub(crate) fn read(address: SocketAddr) -> Result<Self> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        write!(
            stream,
            "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .context("cannot read the host's metrics")?;
        Ok(Self::parse(&answer))
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| {
            let (name, value) = line.strip_prefix("frostline_")?.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self(lines.collect())
    }

    /// Value of a metric without labels.
    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Sum of a metric over all tenants.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        let of_tenants = |key: &str| key.strip_prefix(name).is_some_and(|rest| rest.starts_with('{'));
        let values = self.0.iter().filter(|(key, _)| of_tenants(key));
        values.map(|(_, value)| value).sum()
    }

    /// Value of a tenant's metric.
    pub(crate) fn of_tenant(&self, name: &str, tenant: &str) -> Option<f64> {
        self.value(&format!("{name}{{tenant=\"{tenant}\"}}"))
    }
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn values_are_found_by_name_and_tenant() {
        let metrics = Metrics::parse(
            "HTTP/1.1 200 OK\r\n\r\n# HELP x\nfrostline_lane_samples_total 5\nfrostline_tenant_device_seconds_total{tenant=\"a\"} 1.5\n",
        );
        assert_eq!(metrics.value("lane_samples_total"), Some(5.0));
        assert_eq!(metrics.of_tenant("tenant_device_seconds_total", "a"), Some(1.5));
        assert_eq!(metrics.of_tenant("tenant_device_seconds_total", "b"), None);
        assert_eq!(metrics.sum("tenant_device_seconds_total"), 1.5);
        assert_eq!(metrics.sum("tenant_device"), 0.0);
    }
}
