//! Parameters in the queries of requests. The table of routes contains their types.

use frostline_wire::Layout;
use schemars::JsonSchema;
use serde::Deserialize;

/// Query of an object listing.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListingQuery {
    pub(super) root: String,
    pub(super) after: Option<String>,
    #[serde(default)]
    pub(super) layout: Layout,
    pub(super) limit: Option<usize>,
}

/// Query of a list of guests or models. `sha256` selects models and has no effect on guests.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PageQuery {
    pub(super) sha256: Option<String>,
    pub(super) after: Option<String>,
    pub(super) limit: Option<usize>,
}

/// Query parameter `?after=`, which is `next` of the previous page.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LogQuery {
    #[serde(default)]
    pub(super) after: u64,
}

/// Query parameter `?sha256=`, which selects a version.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Version {
    pub(super) sha256: Option<String>,
}

/// Query of a probe.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Amount {
    pub(super) bytes: usize,
}

/// Query of the audit log. `limit` is the number of newest entries.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    pub(super) tenant: Option<String>,
    pub(super) limit: Option<usize>,
}

/// Query parameter `?tenant=`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TenantQuery {
    pub(super) tenant: Option<String>,
}

/// Query of the removal of a tenant. With `erase`, it is deleted at once and cannot be restored.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RemovalQuery {
    #[serde(default)]
    pub(super) erase: bool,
}

/// Query of the usage, by days.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageQuery {
    pub(super) from: Option<String>,
    pub(super) to: Option<String>,
    pub(super) tenant: Option<String>,
}
