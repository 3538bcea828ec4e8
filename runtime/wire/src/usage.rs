//! Resource usage of tenants for accounting.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// Resource usage, including failed work. Bytes and seconds are sums, except for `stored_bytes`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Usage {
    /// Device time in seconds. Tenants in the same engine batch share its time.
    pub device_seconds: f64,
    /// CPU time of guest code in seconds.
    pub guest_cpu_seconds: f64,
    /// Bytes read from stores: objects, including those read through for an index, and listings.
    pub read_bytes: u64,
    /// Bytes of all answers sent.
    pub sent_bytes: u64,
    /// Number of answered images, including bad ones.
    pub images: u64,
    /// Number of finished extractions, including failed ones.
    pub extractions: u64,
    /// Number of failed extractions.
    pub failed_extractions: u64,
    /// Number of link measurements.
    pub probes: u64,
    /// Number of sent pages of object listings.
    pub listings: u64,
    /// Peak size of stored guests and models in bytes. For multiple days, the sum of daily peaks.
    pub stored_bytes: u64,
}

/// Resource usage of a tenant on a day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DayUsage {
    /// Date in UTC (example: `2026-11-26`).
    pub day: String,
    /// Tenant name.
    pub tenant: String,
    /// Resource usage on this day.
    #[serde(flatten)]
    pub usage: Usage,
}

impl Usage {
    /// Adds usage from the same day, either of another host or before a restart. Hosts share storage, so
    /// `stored_bytes` is the maximum of both values.
    pub fn add_host(&mut self, other: &Self) {
        let stored = self.stored_bytes.max(other.stored_bytes);
        *self += *other;
        self.stored_bytes = stored;
    }

    /// Returns the usage since `before`, which is an earlier value of the same counters. Decreased counters
    /// have been reset, so the full value is returned.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            device_seconds: time_since(self.device_seconds, before.device_seconds),
            guest_cpu_seconds: time_since(self.guest_cpu_seconds, before.guest_cpu_seconds),
            read_bytes: count_since(self.read_bytes, before.read_bytes),
            sent_bytes: count_since(self.sent_bytes, before.sent_bytes),
            images: count_since(self.images, before.images),
            extractions: count_since(self.extractions, before.extractions),
            failed_extractions: count_since(self.failed_extractions, before.failed_extractions),
            probes: count_since(self.probes, before.probes),
            listings: count_since(self.listings, before.listings),
            stored_bytes: self.stored_bytes,
        }
    }
}

fn count_since(now: u64, then: u64) -> u64 {
    now.checked_sub(then).unwrap_or(now)
}

fn time_since(now: f64, then: f64) -> f64 {
    if now >= then { now - then } else { now }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.device_seconds += other.device_seconds;
        self.guest_cpu_seconds += other.guest_cpu_seconds;
        let counts = [
            (&mut self.read_bytes, other.read_bytes),
            (&mut self.sent_bytes, other.sent_bytes),
            (&mut self.images, other.images),
            (&mut self.extractions, other.extractions),
            (&mut self.failed_extractions, other.failed_extractions),
            (&mut self.probes, other.probes),
            (&mut self.listings, other.listings),
            (&mut self.stored_bytes, other.stored_bytes),
        ];
        for (sum, more) in counts {
            *sum = sum.saturating_add(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Usage = Usage {
        device_seconds: 1.5,
        guest_cpu_seconds: 0.5,
        read_bytes: 100,
        sent_bytes: 10,
        images: 3,
        extractions: 2,
        failed_extractions: 1,
        probes: 1,
        listings: 1,
        stored_bytes: 50,
    };

    #[test]
    fn hosts_add_up_but_what_they_store_is_the_same() {
        let mut sum = ONE;
        sum.add_host(&Usage {
            stored_bytes: 40,
            ..ONE
        });
        assert_eq!((sum.images, sum.device_seconds, sum.stored_bytes), (6, 3.0, 50));
        sum += ONE;
        assert_eq!((sum.images, sum.stored_bytes), (9, 100), "days add up");
    }

    #[test]
    fn a_counter_that_began_anew_counts_from_nothing() {
        let later = Usage {
            images: 5,
            device_seconds: 0.25,
            ..ONE
        };
        let since = later.since(&ONE);
        assert_eq!(
            (since.images, since.device_seconds, since.read_bytes),
            (2, 0.25, 0)
        );
        assert_eq!(since.stored_bytes, 50, "this value is not a counter");
    }
}
