//! Quotas of tenants: defaults derived from the host's configuration, and values set by an admin.

use crate::config::HostConfig;
use frostline_batching::Standing;
use frostline_wire::{Quota, QuotaInfo, QuotaKey, UNLIMITED};
use std::time::Duration;

/// Concurrent uploads. A job uploads a guest and a model, and another job might start at the same time.
const UPLOADS: u64 = 4;

/// All tenants have the same weight.
const WEIGHT: u64 = 1;

/// Stored bytes, enough for several versions of the largest common models (VGG19 uses 575 MB).
const STORED_BYTES: u64 = 8 << 30;

/// Effective quota of one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TenantQuota {
    overrides: Quota,
    defaults: Quota,
}

impl TenantQuota {
    /// Returns the quota of an added tenant. The default is half of the host's permits and a quarter of the
    /// queue, so two busy tenants always leave room for each other.
    ///
    /// `defaults` are the values of `[quota]`.
    pub(crate) fn for_added(own: &Quota, config: &HostConfig, defaults: &Quota) -> Self {
        let permits = [
            (QuotaKey::Running, config.running.div_ceil(2)),
            (QuotaKey::Queued, config.queued.div_ceil(4)),
        ];
        Self::new(own, config, permits, defaults)
    }

    /// Returns the quota of the configured tenant: all of the host's permits, because on most hosts it is the
    /// only tenant.
    pub(crate) fn for_configured(config: &HostConfig, defaults: &Quota) -> Self {
        let permits = [
            (QuotaKey::Running, config.running),
            (QuotaKey::Queued, config.queued),
        ];
        Self::new(&Quota::new(), config, permits, defaults)
    }

    fn new(own: &Quota, config: &HostConfig, permits: [(QuotaKey, usize); 2], of_host: &Quota) -> Self {
        let limits = frostline_sandbox::Limits::default();
        let mut defaults = Quota::from(permits.map(|(key, value)| (key, value as u64)));
        defaults.extend([
            (QuotaKey::Weight, WEIGHT),
            (QuotaKey::Uploads, UPLOADS),
            (QuotaKey::StoredBytes, STORED_BYTES),
            (QuotaKey::WallSeconds, config.extraction_timeout.as_secs()),
            (QuotaKey::CpuSeconds, limits.cpu_seconds),
            (QuotaKey::TensorBytes, limits.tensor_bytes as u64),
            (QuotaKey::ObjectReads, limits.object_reads),
            (QuotaKey::ObjectBytes, limits.object_bytes),
            (QuotaKey::OutputBytes, limits.output_bytes),
            (QuotaKey::LogBytes, limits.log_bytes),
            (QuotaKey::DeviceSecondsPerDay, UNLIMITED),
            (QuotaKey::BytesPerDay, UNLIMITED),
            (QuotaKey::ReadBytesPerDay, UNLIMITED),
        ]);
        // Values in `[quota]` of the configuration apply to every tenant without its own value.
        defaults.extend(of_host);
        Self {
            overrides: own.clone(),
            defaults,
        }
    }

    /// Returns the limit for `key`.
    pub(crate) fn get(&self, key: QuotaKey) -> u64 {
        let value = self.overrides.get(&key).or_else(|| self.defaults.get(&key));
        value.copied().unwrap_or(0)
    }

    /// Returns the limit for `key` as a `usize`, saturating.
    pub(crate) fn number(&self, key: QuotaKey) -> usize {
        usize::try_from(self.get(key)).unwrap_or(usize::MAX)
    }

    /// Returns the weight of the tenant in the scheduling of device time.
    pub(crate) fn weight(&self) -> u32 {
        u32::try_from(self.get(QuotaKey::Weight)).unwrap_or(u32::MAX)
    }

    /// Returns the limits for running and queued extractions.
    pub(crate) fn permits(&self) -> Standing {
        Standing {
            running: self.number(QuotaKey::Running),
            queued: self.number(QuotaKey::Queued),
        }
    }

    /// Returns the time limit of one extraction.
    pub(crate) fn wall(&self) -> Duration {
        Duration::from_secs(self.get(QuotaKey::WallSeconds))
    }

    /// Returns the sandbox limits of one extraction.
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

    /// Lists all limits for an admin; `used` returns the current usage of a key if it is known.
    pub(crate) fn info(&self, used: impl Fn(QuotaKey) -> Option<u64>) -> Vec<QuotaInfo> {
        QuotaKey::all()
            .map(|key| QuotaInfo {
                key,
                value: self.get(key),
                default: self.defaults.get(&key).copied().unwrap_or(0),
                own: self.overrides.contains_key(&key),
                used: used(key),
            })
            .collect()
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
        let allowed = TenantQuota::for_added(&own, &config, &config.live.get().quota);
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
        assert_eq!(
            TenantQuota::for_configured(&config, &config.live.get().quota).get(QuotaKey::Running),
            4
        );
    }

    #[test]
    fn every_key_has_a_default() {
        let config = HostConfig::from_toml("").unwrap();
        let allowed = TenantQuota::for_added(&Quota::new(), &config, &Quota::new());
        assert!(
            allowed.info(|_| None).iter().all(|info| info.value > 0),
            "{allowed:?}"
        );
    }
}
