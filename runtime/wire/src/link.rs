use std::time::Duration;

/// The link to a host, or the combined links to multiple hosts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Total throughput of all connections, in bytes per second.
    pub bytes_per_second: f64,
    /// Round-trip time of a small request. For multiple hosts, the maximum.
    pub round_trip: Duration,
    /// Number of connections required for this throughput.
    pub connections: usize,
    /// Throughput of a single connection in bytes per second. For multiple hosts, the minimum.
    pub connection_bytes_per_second: f64,
}

impl Link {
    /// Combines two links measured and used concurrently.
    pub fn joined(self, other: Self) -> Self {
        Self {
            bytes_per_second: self.bytes_per_second + other.bytes_per_second,
            round_trip: self.round_trip.max(other.round_trip),
            connections: self.connections + other.connections,
            connection_bytes_per_second: self
                .connection_bytes_per_second
                .min(other.connection_bytes_per_second),
        }
    }
}
