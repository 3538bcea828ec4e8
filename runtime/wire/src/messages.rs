use crate::{Encoding, Split};
use serde::{Deserialize, Serialize};

/// A guest or model by name and exact content.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pin {
    /// The name it was uploaded under: `[a-z0-9][a-z0-9._-]{0,62}`.
    pub name: String,
    /// SHA-256 of its bytes, lower-case hex.
    pub sha256: String,
}

/// A guest on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestInfo {
    /// Its name.
    pub name: String,
    /// SHA-256 of the bytes as uploaded.
    pub sha256: String,
    /// Their number.
    pub bytes: u64,
    /// When this version was uploaded, in seconds since 1970.
    pub uploaded_at: u64,
    /// Whether whoever runs the host has it refused.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disabled: bool,
}

/// A model on a host, as `GET /v1/models/{name}` answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// Its name.
    pub name: String,
    /// SHA-256 of the bytes as uploaded.
    pub sha256: String,
    /// Their number.
    pub bytes: u64,
    /// When this version was uploaded, in seconds since 1970.
    pub uploaded_at: u64,
    /// The input tensor's name.
    pub input: String,
    /// Shape of one input sample.
    pub input_shape: Vec<usize>,
    /// The cuts, in the order of execution.
    pub cuts: Vec<CutInfo>,
    /// Whether it is one that whoever runs the host offers to all tenants.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shared: bool,
}

/// What is not so is not said: answers stay as they were.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

/// One cut of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CutInfo {
    /// The tensor that carries everything across.
    pub name: String,
    /// Shape of one sample.
    pub shape: Vec<usize>,
    /// Bytes of one sample in f32.
    pub bytes_per_sample: u64,
    /// Share of the whole model's multiply-adds that lie before the cut, 0 to 1.
    pub compute_share: f64,
}

/// Asks what a guest does for a model: `POST /v1/descriptions`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DescriptionRequest {
    /// The guest.
    pub guest: Pin,
    /// The model.
    pub model: Pin,
    /// Passed to the guest as it is; the stock guest takes a JSON `PixelSpec` or an empty string.
    #[serde(default)]
    pub parameters: String,
}

/// One pushdown request: `POST /v1/extractions`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtractionRequest {
    /// The data root, as an object store URL the tenant was granted.
    pub root: String,
    /// Where the network is divided.
    pub split: Split,
    /// The guest; not needed for `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<Pin>,
    /// The model; not needed for `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Pin>,
    /// Passed to the guest as it is.
    #[serde(default)]
    pub parameters: String,
    /// How activations travel.
    #[serde(default)]
    pub encoding: Encoding,
    /// The samples; each position is answered exactly once, in any order.
    pub samples: Vec<RequestedSample>,
}

/// One sample of an extraction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestedSample {
    /// The client's number for it, unique in the request.
    pub position: u32,
    /// The object's key, relative to the root.
    pub key: String,
    /// The version that is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
}

/// One object of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectInfo {
    /// Its key, relative to the root.
    pub key: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Its class, where a shard says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// How samples lie under a data root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// The host finds out from the root's first keys.
    #[default]
    Auto,
    /// Every object is a sample.
    Objects,
    /// Samples lie inside tar archives.
    Shards,
}

impl Layout {
    /// As it is written in a query.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Objects => "objects",
            Self::Shards => "shards",
        }
    }
}

/// What listings are ascending by: an object's key; for a sample inside a shard (`train-000.tar//00012.jpg`) first the shard's, then
/// the sample's name there.
pub fn listing_order(key: &str) -> (&str, &str) {
    key.split_once("//").unwrap_or((key, ""))
}

/// A page of `GET /v1/objects?root=&after=&layout=`, ascending by [`listing_order`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectPage {
    /// The objects.
    pub objects: Vec<ObjectInfo>,
    /// Pass as `after` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// What was passed over up to `next`; absent where nothing was.
    #[serde(default, skip_serializing_if = "LeftOut::is_empty")]
    pub left_out: LeftOut,
}

/// Names in a store that are no keys: with an empty segment, `.`, `..`, a control character or bytes that are not UTF-8; and links that
/// lead out of the root or nowhere.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// How many.
    pub count: u64,
    /// The first few, escaped and shortened.
    pub names: Vec<String>,
}

impl LeftOut {
    /// Whether nothing was.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// How busy a host is: `GET /v1/load`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Extractions waiting.
    pub queued: u64,
    /// Extractions running.
    pub running: u64,
    /// Engine lanes.
    pub lanes: u64,
    /// Samples answered per second over the last seconds.
    pub samples_per_second: f64,
}
