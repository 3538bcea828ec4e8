//! Resource quotas of tenants.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::str::FromStr;
use strum::{AsRefStr, Display, EnumIter, IntoEnumIterator, VariantNames};

/// Resource with a quota.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    AsRefStr,
    Display,
    EnumIter,
    VariantNames,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum QuotaKey {
    /// Maximum number of concurrent extractions.
    Running,
    /// Maximum number of waiting extractions.
    Queued,
    /// Part of device time relative to other tenants, 1 to 100.
    Weight,
    /// Maximum number of concurrent uploads.
    Uploads,
    /// Bytes of stored guests and models, including all versions.
    StoredBytes,
    /// Maximum duration of an extraction in seconds, including waits.
    WallSeconds,
    /// Maximum CPU seconds of guest code per extraction.
    CpuSeconds,
    /// Maximum bytes of live tensors per extraction.
    TensorBytes,
    /// Maximum number of objects read per extraction.
    ObjectReads,
    /// Maximum bytes of objects read per extraction.
    ObjectBytes,
    /// Maximum bytes of an extraction's answer.
    OutputBytes,
    /// Maximum bytes of log lines per extraction.
    LogBytes,
    /// Device time per day (UTC) in seconds, summed over all hosts with the same state.
    DeviceSecondsPerDay,
    /// Bytes sent to the tenant per day (UTC), summed over all hosts with the same state.
    BytesPerDay,
    /// Bytes read from stores for the tenant per day (UTC), summed over all hosts with the same state.
    ReadBytesPerDay,
}

/// Unit of a [`QuotaKey`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaUnit {
    /// A count.
    Number,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

/// Value of an unlimited quota.
pub const UNLIMITED: u64 = u64::MAX;

/// Values by key. Missing keys use the host's default.
pub type Quota = BTreeMap<QuotaKey, u64>;

impl QuotaKey {
    /// Returns all keys in display order.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::iter()
    }

    /// Checks a value. Weights range from 1 to 100. A tenant that may not run an extraction would wait forever, so
    /// `running` and `wall_seconds` are 1 or more. Other values are unrestricted.
    ///
    /// # Errors
    /// Returns [`QuotaRange`] if the value is out of range.
    pub fn check(self, value: u64) -> Result<(), QuotaRange> {
        let range = match self {
            Self::Weight => 1..=100,
            Self::Running | Self::WallSeconds => 1..=u64::MAX,
            _ => 0..=u64::MAX,
        };
        if range.contains(&value) {
            return Ok(());
        }
        Err(QuotaRange {
            key: self,
            value,
            range,
        })
    }

    /// Returns the unit of the values.
    pub fn unit(self) -> QuotaUnit {
        match self {
            Self::Running | Self::Queued | Self::Weight | Self::Uploads | Self::ObjectReads => {
                QuotaUnit::Number
            }
            Self::WallSeconds | Self::CpuSeconds | Self::DeviceSecondsPerDay => QuotaUnit::Seconds,
            Self::StoredBytes
            | Self::TensorBytes
            | Self::ObjectBytes
            | Self::OutputBytes
            | Self::LogBytes
            | Self::BytesPerDay
            | Self::ReadBytesPerDay => QuotaUnit::Bytes,
        }
    }
}

/// Error for quota values outside the valid range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {key} {value}: expected {}", expected(range))]
pub struct QuotaRange {
    /// Key of the rejected value.
    pub key: QuotaKey,
    /// Rejected value.
    pub value: u64,
    /// Valid range.
    pub range: RangeInclusive<u64>,
}

fn expected(range: &RangeInclusive<u64>) -> String {
    let start = range.start();
    match *range.end() {
        UNLIMITED => format!("{start} or more; to refuse a tenant's work, disable the tenant"),
        end => format!("{start} to {end}"),
    }
}

/// Unknown name of a quota.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown quota {word:?}: expected one of {}", QuotaKey::VARIANTS.join(", "))]
pub struct UnknownQuota {
    /// The unknown name.
    pub word: String,
}

impl FromStr for QuotaKey {
    type Err = UnknownQuota;

    fn from_str(word: &str) -> Result<Self, UnknownQuota> {
        let written = word.replace('-', "_");
        Self::iter()
            .find(|key| key.as_ref() == written)
            .ok_or_else(|| UnknownQuota {
                word: word.to_owned(),
            })
    }
}

/// Quota of a tenant in the admin interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuotaInfo {
    /// Resource that the quota limits.
    pub key: QuotaKey,
    /// Value for the tenant. In JSON, [`UNLIMITED`] is `null`.
    #[serde(with = "unlimited")]
    #[schemars(with = "Option<u64>")]
    pub value: u64,
    /// Default of the host. In JSON, [`UNLIMITED`] is `null`.
    #[serde(with = "unlimited")]
    #[schemars(with = "Option<u64>")]
    pub default: u64,
    /// True if the value is set for this tenant.
    pub own: bool,
    /// Current usage, or usage of the current day. `None` if it cannot be attributed to a tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
}

/// Representation of [`UNLIMITED`] as `null`. JSON numbers of this size lose digits in many programs.
mod unlimited {
    use super::UNLIMITED;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "the signature is prescribed by serde"
    )]
    pub(super) fn serialize<S: Serializer>(value: &u64, to: S) -> Result<S::Ok, S::Error> {
        Some(*value).filter(|value| *value != UNLIMITED).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        Ok(Option::deserialize(from)?.unwrap_or(UNLIMITED))
    }
}

/// Changes of quotas. `None` resets a quota to the host's default.
pub type QuotaChange = BTreeMap<QuotaKey, Option<u64>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_words_everywhere() {
        for key in QuotaKey::all() {
            let json = serde_json::to_string(&key).unwrap();
            assert_eq!(json, format!("\"{key}\""));
            assert_eq!(key.to_string().parse(), Ok(key));
        }
        assert_eq!("stored-bytes".parse(), Ok(QuotaKey::StoredBytes));
        let error = "stored".parse::<QuotaKey>().unwrap_err().to_string();
        assert!(error.contains("stored_bytes"), "{error}");
    }

    #[test]
    fn a_weight_is_1_to_100() {
        assert!(QuotaKey::Weight.check(1).is_ok() && QuotaKey::Weight.check(100).is_ok());
        for value in [0, 101] {
            let error = QuotaKey::Weight.check(value).unwrap_err().to_string();
            assert_eq!(error, format!("invalid weight {value}: expected 1 to 100"));
        }
        assert!(QuotaKey::Queued.check(0).is_ok());
        let error = QuotaKey::Running.check(0).unwrap_err().to_string();
        assert!(
            error.contains("1 or more") && error.contains("disable"),
            "{error}"
        );
    }

    #[test]
    fn unlimited_is_null_in_json() {
        for (value, json) in [(UNLIMITED, "null"), (7, "7")] {
            let info = QuotaInfo {
                key: QuotaKey::BytesPerDay,
                value,
                default: value,
                own: false,
                used: None,
            };
            let text = serde_json::to_string(&info).unwrap();
            assert_eq!(
                text,
                format!("{{\"key\":\"bytes_per_day\",\"value\":{json},\"default\":{json},\"own\":false}}")
            );
            assert_eq!(serde_json::from_str::<QuotaInfo>(&text).unwrap(), info);
        }
    }

    #[test]
    fn a_change_tells_a_default_from_no_change() {
        let change: QuotaChange = serde_json::from_str(r#"{"running":3,"queued":null}"#).unwrap();
        assert_eq!(change[&QuotaKey::Running], Some(3));
        assert_eq!(change[&QuotaKey::Queued], None);
        assert!(!change.contains_key(&QuotaKey::Uploads));
        assert!(serde_json::from_str::<QuotaChange>(r#"{"runing":3}"#).is_err());
    }
}
