//! What a tenant may use of a host.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::str::FromStr;
use strum::{AsRefStr, Display, EnumIter, IntoEnumIterator, VariantNames};

/// A limited resource of a tenant.
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
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum QuotaKey {
    /// Extractions running at once.
    Running,
    /// Extractions waiting beyond these.
    Queued,
    /// Its part of device time beside others': 1 to 100.
    Weight,
    /// Uploads being received at once.
    Uploads,
    /// Bytes of guests and models kept, all versions together.
    StoredBytes,
    /// Seconds one extraction may take, waiting included.
    WallSeconds,
    /// Seconds of CPU time of guest code for one extraction.
    CpuSeconds,
    /// Bytes of tensors alive on the host for one extraction.
    TensorBytes,
    /// Objects one extraction may read.
    ObjectReads,
    /// Bytes of them one extraction may read.
    ObjectBytes,
    /// Bytes of one extraction's answer.
    OutputBytes,
    /// Bytes of log lines of one extraction.
    LogBytes,
    /// Seconds of device time a day (UTC), over all hosts of a state.
    DeviceSecondsPerDay,
    /// Bytes sent to the tenant a day (UTC), over all hosts of a state.
    BytesPerDay,
}

/// The unit of a [`QuotaKey`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaUnit {
    /// A count.
    Number,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

/// The value of a quota that does not limit.
pub const UNLIMITED: u64 = u64::MAX;

/// Values by key; a missing key stands for the host's default.
pub type Quota = BTreeMap<QuotaKey, u64>;

impl QuotaKey {
    /// All keys, in the order they are shown.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::iter()
    }

    /// Validates a value: a weight is 1 to 100, everything else any number.
    ///
    /// # Errors
    /// [`QuotaRange`].
    pub fn check(self, value: u64) -> Result<(), QuotaRange> {
        let range = match self {
            Self::Weight => 1..=100,
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

    /// The unit of its values.
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
            | Self::BytesPerDay => QuotaUnit::Bytes,
        }
    }
}

/// A quota value out of range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {key} {value}: expected {} to {}", range.start(), range.end())]
pub struct QuotaRange {
    /// The key.
    pub key: QuotaKey,
    /// The given value.
    pub value: u64,
    /// The allowed range.
    pub range: RangeInclusive<u64>,
}

/// An unknown quota key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown quota {word:?}: expected one of {}", QuotaKey::VARIANTS.join(", "))]
pub struct UnknownQuota {
    /// The word.
    pub word: String,
}

impl FromStr for QuotaKey {
    type Err = UnknownQuota;

    fn from_str(word: &str) -> Result<Self, UnknownQuota> {
        let unknown = || UnknownQuota {
            word: word.to_owned(),
        };
        let written = word.replace('-', "_");
        Self::iter()
            .find(|key| key.as_ref() == written)
            .ok_or_else(unknown)
    }
}

/// A tenant's quota as its admin sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaInfo {
    /// The key.
    pub key: QuotaKey,
    /// The tenant's value.
    pub value: u64,
    /// The host's default.
    pub default: u64,
    /// Whether the value is set for this tenant.
    pub own: bool,
    /// How much of it is used now, or was today, where that can be said of a tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
}

/// A change of a quota: a value, or `None` for the host's default.
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
        assert!(QuotaKey::Running.check(0).is_ok());
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
