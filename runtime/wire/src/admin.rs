//! What `frostline admin` and a host say to each other.

use crate::MemoryLoad;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A tenant as its host's admin sees it. Times are in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantInfo {
    /// Its name.
    pub name: String,
    /// When it was added.
    pub created_at: u64,
    /// Whether its requests are refused.
    pub disabled: bool,
    /// Data roots it may read, each with everything below it.
    pub data: Vec<String>,
    /// Its tokens, without their secrets.
    pub tokens: Vec<TokenInfo>,
}

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenInfo {
    /// Which of the tenant's tokens this is: the part before its secret.
    pub id: String,
    /// When it was made.
    pub created_at: u64,
    /// When it ends; `None` for never.
    pub expires_at: Option<u64>,
}

/// A tenant to be added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewTenant {
    /// Its name: `[a-z0-9][a-z0-9._-]{0,62}`.
    pub name: String,
    /// Data roots it may read.
    pub data: Vec<String>,
    /// How long its first token lives.
    #[serde(default)]
    pub token_seconds: Option<u64>,
    /// Whether roots that do not answer now are taken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unchecked: bool,
}

/// What is to be different about a tenant; what is not there stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantChange {
    /// Data roots it may read, in place of those before.
    #[serde(default)]
    pub data: Option<Vec<String>>,
    /// Whether its requests are refused.
    #[serde(default)]
    pub disabled: Option<bool>,
    /// Whether roots that do not answer now are taken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unchecked: bool,
}

/// A token to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// How long it lives; `None` for as long as the newest one was given, and `u64::MAX` for no end.
    #[serde(default)]
    pub token_seconds: Option<u64>,
    /// When the tenant's other tokens end at the latest, in seconds from now; `None` leaves them as they are.
    #[serde(default)]
    pub others_seconds: Option<u64>,
}

/// A guest or a model as its host's admin sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadInfo {
    /// Whose it is; `None` for a model that all tenants may use.
    pub tenant: Option<String>,
    /// Its name.
    pub name: String,
    /// Whether it is refused.
    pub disabled: bool,
    /// Its versions, the newest first.
    pub versions: Vec<UploadVersion>,
}

/// A version of a guest or model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadVersion {
    /// SHA-256 of its bytes, lower-case hex.
    pub sha256: String,
    /// Their number.
    pub bytes: u64,
    /// When it was uploaded, in seconds since 1970.
    pub uploaded_at: u64,
}

/// What is to be different about a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestChange {
    /// Whether it is refused.
    pub disabled: bool,
}

/// What goes on at a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// Whether it takes no new work any more.
    pub stopping: bool,
    /// Extractions that may run at once.
    pub places: u64,
    /// Extractions running.
    pub running: u64,
    /// Extractions waiting.
    pub queued: u64,
    /// Engine lanes.
    pub lanes: u64,
    /// Batches waiting for a lane.
    pub lane_queue: u64,
    /// Memory the host's process takes, in bytes; `None` where the system does not tell.
    pub memory_bytes: Option<u64>,
    /// What it may hold, and holds; `None` from older hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryActivity>,
    /// What its lanes may hold of a GPU's memory, where they run on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_memory: Option<MemoryLoad>,
    /// Data roots whose stores do not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failing_roots: Vec<FailingRoot>,
    /// Who did something since the host started.
    pub tenants: Vec<TenantActivity>,
}

/// A data root whose store does not answer a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingRoot {
    /// The root.
    pub root: String,
    /// How it fails, in a word: `busy`, `denied`, `credentials`, `no_bucket`, `unreachable`, `timeout`, `broken` or `failed`.
    pub fault: String,
    /// Since how many seconds.
    pub seconds: u64,
    /// The last error, and what to check.
    pub error: String,
}

/// What a host and its lanes may hold of memory, and hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryActivity {
    /// Bytes that they may hold.
    pub budget: u64,
    /// Bytes that they hold.
    pub held: u64,
    /// Who waits for some.
    pub waiting: u64,
    /// Bytes by what they are held for; `base` is what nobody reserved.
    pub kinds: BTreeMap<String, u64>,
}

/// What one tenant does, and did since the host started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TenantActivity {
    /// The tenant.
    pub name: String,
    /// Its extractions running.
    pub running: u64,
    /// Its extractions waiting.
    pub queued: u64,
    /// Extractions that ended, however.
    pub extractions: u64,
    /// Samples answered.
    pub samples: u64,
    /// Bytes of extractions, probes and listings sent.
    pub answer_bytes: u64,
    /// Seconds of CPU time of the guest code that ran for it.
    pub cpu_seconds: f64,
    /// Seconds that lanes worked for it.
    #[serde(default)]
    pub device_seconds: f64,
    /// Bytes of memory it holds.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Seconds that its work waited for a lane lately, at most.
    #[serde(default)]
    pub waited_seconds: f64,
}

/// Who did what when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Seconds since 1970.
    pub at: u64,
    /// The host it was done at.
    #[serde(default)]
    pub host: String,
    /// `admin uid <number>`, `admin at <address>` or `tenant <name> at <address>`.
    pub who: String,
    /// What was done, such as `tenant added`.
    pub what: String,
    /// Whose.
    pub tenant: String,
    /// To what, and how.
    pub detail: String,
}

/// A tenant and its fresh token, which is shown this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenToken {
    /// The tenant, the token among its others.
    pub tenant: TenantInfo,
    /// The token.
    pub token: String,
}
