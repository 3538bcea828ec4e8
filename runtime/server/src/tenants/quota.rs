//! What each tenant may use of this host: defaults by the host's size, and what an admin set.

use crate::config::HostConfig;
use frostline_batching::Standing;
use frostline_wire::{Quota, QuotaInfo, QuotaKey, UNLIMITED};
use std::time::Duration;

/// Uploads at once: a job sends a guest and a model, and another job may start beside it.
const UPLOADS: u64 = 4;

/// All tenants alike.
const WEIGHT: u64 = 1;

/// Bytes kept: a few versions of the largest usual models (VGG19 has 575 MB).
const STORED_BYTES: u64 = 8 << 30;

/// What one tenant may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TenantQuota {
    own: Quota,
    defaults: Quota,
}

impl TenantQuota {
    /// An added tenant: of the host's permits half, so that two who take all they may still leave each other room, and of those who
    /// wait a quarter.
    pub(crate) fn for_added(own: &Quota, config: &HostConfig) -> Self {
        let permits = [
            (QuotaKey::Running, config.running.div_ceil(2)),
            (QuotaKey::Queued, config.queued.div_ceil(4)),
        ];
        Self::new(own, config, permits)
    }

    /// The configured tenant: all of the host's permits, which it has to itself on most hosts.
    pub(crate) fn for_configured(config: &HostConfig) -> Self {
        let permits = [
            (QuotaKey::Running, config.running),
            (QuotaKey::Queued, config.queued),
        ];
        Self::new(&Quota::new(), config, permits)
    }

    fn new(own: &Quota, config: &HostConfig, permits: [(QuotaKey, usize); 2]) -> Self {
        let limits = frostline_sandbox::Limits::default();
        let mut defaults = Quota::from(permits.map(|(key, value)| (key, value as u64)));
        defaults.extend([
            (QuotaKey::Weight, WEIGHT),
            (QuotaKey::Uploads, UPLOADS),
            (QuotaKey::StoredBytes, STORED_BYTES),
            (QuotaKey::WallSeconds, config.wall.as_secs()),
            (QuotaKey::CpuSeconds, limits.cpu_seconds),
            (QuotaKey::TensorBytes, limits.tensor_bytes as u64),
            (QuotaKey::ObjectReads, limits.object_reads),
            (QuotaKey::ObjectBytes, limits.object_bytes),
            (QuotaKey::OutputBytes, limits.output_bytes),
            (QuotaKey::LogBytes, limits.log_bytes),
            (QuotaKey::DeviceSecondsPerDay, UNLIMITED),
            (QuotaKey::BytesPerDay, UNLIMITED),
        ]);
        // What the operator wrote holds for everybody who has none of their own.
        defaults.extend(&config.quota);
        Self {
            own: own.clone(),
            defaults,
        }
    }

    /// How much of `key`.
    pub(crate) fn get(&self, key: QuotaKey) -> u64 {
        let value = self.own.get(&key).or_else(|| self.defaults.get(&key));
        value.copied().unwrap_or(0)
    }

    /// How many of `key`.
    pub(crate) fn number(&self, key: QuotaKey) -> usize {
        usize::try_from(self.get(key)).unwrap_or(usize::MAX)
    }

    /// Its part of device time beside others'.
    pub(crate) fn weight(&self) -> u32 {
        u32::try_from(self.get(QuotaKey::Weight)).unwrap_or(u32::MAX)
    }

    /// How many extractions may run and wait.
    pub(crate) fn permits(&self) -> Standing {
        Standing {
            running: self.number(QuotaKey::Running),
            queued: self.number(QuotaKey::Queued),
        }
    }

    /// How long an extraction may take.
    pub(crate) fn wall(&self) -> Duration {
        Duration::from_secs(self.get(QuotaKey::WallSeconds))
    }

    /// What one extraction may use in the sandbox.
    pub(crate) fn limits(&self) -> frostline_sandbox::Limits {
        frostline_sandbox::Limits {
            cpu_seconds: self.get(QuotaKey::CpuSeconds),
            tensor_bytes: self.number(QuotaKey::TensorBytes),
            object_reads: self.get(QuotaKey::ObjectReads),
            object_bytes: self.get(QuotaKey::ObjectBytes),
            output_bytes: self.get(QuotaKey::OutputBytes),
            log_bytes: self.get(QuotaKey::LogBytes),
            ..frostline_sandbox::Limits::default()
        }
    }

    /// All of it, as an admin sees it, with what is `used` of each.
    pub(crate) fn info(&self, used: impl Fn(QuotaKey) -> Option<u64>) -> Vec<QuotaInfo> {
        let info = |key| QuotaInfo {
            key,
            value: self.get(key),
            default: self.defaults.get(&key).copied().unwrap_or(0),
            own: self.own.contains_key(&key),
            used: used(key),
        };
        QuotaKey::all().map(info).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_for_a_tenant_wins_over_the_host_and_that_over_the_defaults() {
        let text = "[extractions]\nrunning = 4\n[quota]\nqueued = 7\nuploads = 2";
        let config = HostConfig::from_toml(text).unwrap();
        let own = Quota::from([(QuotaKey::Uploads, 9)]);
        let allowed = TenantQuota::for_added(&own, &config);
        assert_eq!(allowed.get(QuotaKey::Running), 2, "half of the permits");
        assert_eq!(
            (allowed.get(QuotaKey::Queued), allowed.get(QuotaKey::Uploads)),
            (7, 9)
        );
        let uploads = allowed
            .info(|_| None)
            .into_iter()
            .find(|info| info.key == QuotaKey::Uploads)
            .unwrap();
        assert_eq!((uploads.value, uploads.default, uploads.own), (9, 2, true));
        assert_eq!(TenantQuota::for_configured(&config).get(QuotaKey::Running), 4);
    }

    #[test]
    fn every_key_has_a_default() {
        let config = HostConfig::from_toml("").unwrap();
        let allowed = TenantQuota::for_added(&Quota::new(), &config);
        assert!(
            allowed.info(|_| None).iter().all(|info| info.value > 0),
            "{allowed:?}"
        );
    }
}
