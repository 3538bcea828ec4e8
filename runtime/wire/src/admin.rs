//! Types of the admin interface between `frostline admin` and hosts.

use crate::{MemoryLoad, bounded};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Tenant in the admin interface. Times are Unix times in seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantInfo {
    /// Tenant name.
    pub name: String,
    /// Creation time.
    pub created_at: u64,
    /// True if requests of the tenant are rejected.
    pub disabled: bool,
    /// Readable data roots. Access includes all objects below these URLs.
    pub data: Vec<String>,
    /// Tokens without secrets.
    pub tokens: Vec<TokenInfo>,
    /// Time until which the removed tenant can be restored, or `None` if the tenant was not removed.
    pub kept_until: Option<u64>,
}

/// Removal of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Removal {
    /// Time until which the tenant can be restored, or `None` if it was deleted.
    pub kept_until: Option<u64>,
}

/// Public part of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenInfo {
    /// Token id. In a token, it precedes the secret.
    pub id: String,
    /// Creation time.
    pub created_at: u64,
    /// Expiration time, or `None` if the token does not expire.
    pub expires_at: Option<u64>,
}

/// Request to add a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTenant {
    /// Tenant name: `[a-z0-9][a-z0-9._-]{0,62}`.
    #[serde(deserialize_with = "bounded::name")]
    pub name: String,
    /// Readable data roots.
    #[serde(deserialize_with = "bounded::data")]
    pub data: Vec<String>,
    /// Lifetime of the first token in seconds. `None` means 90 days, and `u64::MAX` no expiration.
    #[serde(default)]
    pub token_seconds: Option<u64>,
    /// True to accept data roots that do not respond.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unchecked: bool,
}

/// Request to change a tenant. Omitted fields are not changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantChange {
    /// New list of data roots. It replaces the previous list.
    #[serde(default, deserialize_with = "bounded::data")]
    pub data: Option<Vec<String>>,
    /// True to reject requests of the tenant.
    #[serde(default)]
    pub disabled: Option<bool>,
    /// False to restore a removed tenant.
    #[serde(default)]
    pub removed: Option<bool>,
    /// True to accept data roots that do not respond.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unchecked: bool,
}

/// Request to create a token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Lifetime of the token in seconds. `None` uses the lifetime of the newest token, and `u64::MAX` means
    /// no expiration.
    #[serde(default)]
    pub token_seconds: Option<u64>,
    /// Maximum remaining lifetime of the tenant's other tokens in seconds. `None` keeps the current
    /// expiration times.
    #[serde(default)]
    pub others_seconds: Option<u64>,
}

/// Guest or model in the admin interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UploadInfo {
    /// Owner, or `None` for shared models.
    pub tenant: Option<String>,
    /// Upload name.
    pub name: String,
    /// True if the upload is disabled.
    pub disabled: bool,
    /// Versions in descending order of upload time.
    pub versions: Vec<UploadVersion>,
}

/// Version of a guest or model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UploadVersion {
    /// SHA-256 of the content in lower-case hexadecimal.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Upload time in seconds since 1970.
    pub uploaded_at: u64,
}

/// Request to change a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuestChange {
    /// True to disable the guest.
    pub disabled: bool,
}

/// Host that shares the state, as described by its latest record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostInfo {
    /// Host name.
    pub name: String,
    /// Id of the host process, which changes with every start.
    pub run: String,
    /// URL for tenants, with the address that the host listens on.
    pub address: String,
    /// Version of the host.
    pub version: String,
    /// Seconds since the answering host noticed the record, 0 for the answering host. Hosts write a record every ten
    /// seconds.
    pub silent_seconds: u64,
    /// Seconds that the host's clock is ahead of other clocks, or `None` if the host knows no other clock.
    pub clock_skew_seconds: Option<i64>,
    /// Activity of the host. Records only contain the busiest tenants.
    #[serde(flatten)]
    pub activity: Activity,
}

/// Result of a revocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Revoked {
    /// Reason why the state could not be written yet. The answering host refuses the token, and retries to write the
    /// state.
    pub pending: Option<String>,
    /// Names of hosts that may still accept the token.
    pub unaware: Vec<String>,
}

/// Current activity of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Activity {
    /// True if the host is draining.
    pub stopping: bool,
    /// Maximum number of concurrent extractions.
    pub places: u64,
    /// Number of running extractions.
    pub running: u64,
    /// Number of waiting extractions.
    pub queued: u64,
    /// Number of lanes.
    pub lanes: u64,
    /// Number of engine batches waiting for a lane.
    pub lane_queue: u64,
    /// Resident memory of the host process in bytes, or `None` if the system does not report it.
    pub memory_bytes: Option<u64>,
    /// Memory accounting.
    pub memory: Option<MemoryActivity>,
    /// GPU memory of the lanes, if they run on a GPU.
    pub device_memory: Option<MemoryLoad>,
    /// Data roots with failing stores.
    pub failing_roots: Vec<FailingRoot>,
    /// Tenants with activity since the host started.
    pub tenants: Vec<TenantActivity>,
}

/// Data root with a failing store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailingRoot {
    /// URL of the data root.
    pub root: String,
    /// Kind of failure. One of `busy`, `denied`, `credentials`, `no_bucket`, `unreachable`, `timeout`,
    /// `broken` or `failed`.
    pub fault: String,
    /// Duration of the failure in seconds.
    pub seconds: u64,
    /// Last error, including a hint.
    pub error: String,
}

/// Memory accounting of a host and all lanes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryActivity {
    /// Memory budget in bytes.
    pub budget: u64,
    /// Reserved memory in bytes.
    pub held: u64,
    /// Number of waiting reservations.
    pub waiting: u64,
    /// Reserved bytes by kind. `base` is unreserved memory.
    pub kinds: BTreeMap<String, u64>,
}

/// Activity of a tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TenantActivity {
    /// Tenant name.
    pub name: String,
    /// Number of running extractions.
    pub running: u64,
    /// Number of waiting extractions.
    pub queued: u64,
    /// Number of finished extractions since the host started.
    pub extractions: u64,
    /// Number of answered samples since the host started.
    pub samples: u64,
    /// Bytes of all answers sent since the host started.
    pub answer_bytes: u64,
    /// CPU time of guest code in seconds.
    pub cpu_seconds: f64,
    /// Device time in seconds.
    #[serde(default)]
    pub device_seconds: f64,
    /// Reserved memory in bytes.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Number of busy lanes.
    #[serde(default)]
    pub lanes: u64,
    /// Longest recent wait for a lane in seconds.
    #[serde(default)]
    pub waited_seconds: f64,
}

/// Entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    /// Unix time in seconds.
    pub at: u64,
    /// Name of the host that handled the request.
    #[serde(default)]
    pub host: String,
    /// Caller: `admin uid <number>`, `admin at <address>` or `tenant <name> at <address>`.
    pub who: String,
    /// Action (example: `tenant added`).
    pub what: String,
    /// Tenant name.
    pub tenant: String,
    /// Affected object and details.
    pub detail: String,
}

/// Tenant with a new token. The token is shown only once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GivenToken {
    /// Tenant, including the new token.
    pub tenant: TenantInfo,
    /// Full token including the secret.
    pub token: String,
}
