use crate::{Encoding, Split, TensorInfo, bounded};
use frostline_tensor::{ObjectInfo, SampleRef, Terms, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reference to a guest or model by name and content.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct UploadRef {
    /// Upload name: `[a-z0-9][a-z0-9._-]{0,62}`.
    #[serde(deserialize_with = "bounded::name")]
    pub name: String,
    /// SHA-256 of the content in lower-case hexadecimal.
    #[serde(deserialize_with = "bounded::sha256")]
    pub sha256: String,
}

/// Guest on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestInfo {
    /// Upload name.
    pub name: String,
    /// SHA-256 of the uploaded bytes.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Upload time in seconds since 1970.
    pub uploaded_at: u64,
    /// True if the operator of the host disabled the guest.
    pub disabled: bool,
}

/// Model on a host. Returned by `GET /v1/models/{name}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelInfo {
    /// Upload name.
    pub name: String,
    /// SHA-256 of the uploaded bytes.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Upload time in seconds since 1970.
    pub uploaded_at: u64,
    /// Name of the input tensor.
    pub input: String,
    /// Input shape of a sample.
    pub input_shape: Vec<usize>,
    /// Tensors that the host joins into the input, for networks with several inputs or integer inputs.
    pub joined_inputs: Vec<TensorInfo>,
    /// Cuts in execution order.
    pub cuts: Vec<CutInfo>,
    /// True if the operator of the host offers this model to all tenants.
    pub shared: bool,
}

/// Cut of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CutInfo {
    /// Name of the tensor at the cut.
    pub name: String,
    /// Shape of a sample.
    pub shape: Vec<usize>,
    /// Bytes per sample in f32.
    pub bytes_per_sample: u64,
    /// Fraction of multiply-adds before the cut (0 to 1).
    pub compute_share: f64,
    /// Tensors that the model concatenates at a joint cut, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tensors: Vec<TensorInfo>,
}

/// Request to describe a guest: `POST /v1/descriptions`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DescriptionRequest {
    /// Reference to the guest.
    pub guest: UploadRef,
    /// Reference to the model.
    pub model: UploadRef,
    /// Text of up to 64 KiB passed to the guest without changes. The stock guest accepts a JSON `PixelSpec` or
    /// an empty string.
    #[serde(default, deserialize_with = "bounded::parameters")]
    pub parameters: String,
}

/// Request for activations: `POST /v1/extractions`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtractionRequest {
    /// Object store URL of the data root. The tenant must have access.
    #[serde(deserialize_with = "bounded::root")]
    pub root: String,
    /// Split of the network.
    pub split: Split,
    /// Reference to the guest. Not required for the split `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<UploadRef>,
    /// Reference to the model. Not required for the split `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<UploadRef>,
    /// Text of up to 64 KiB passed to the guest without changes.
    #[serde(default, deserialize_with = "bounded::parameters")]
    pub parameters: String,
    /// Encoding of activations.
    #[serde(default)]
    pub encoding: Encoding,
    /// Scheduling and precision.
    #[serde(flatten)]
    pub terms: Terms,
    /// Augmentation of pixels, if requested. If raw objects are sent, the client applies the augmentation
    /// after decoding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<View>,
    /// True if each row is the XXH3 hash (64 bits, little-endian) of the object instead of its bytes. Requires the
    /// split `none`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub digests: bool,
    /// Samples. The answer contains a single row for each position, in any order.
    pub samples: Vec<RequestedSample>,
}

/// Sample of an extraction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "FlatSample")]
pub struct RequestedSample {
    /// Number assigned by the client, unique in the request.
    pub position: u32,
    /// Object key and requested version.
    #[serde(flatten)]
    pub sample: SampleRef,
}

impl RequestedSample {
    /// Numbers `objects` from 0.
    pub fn in_order(objects: &[ObjectInfo]) -> Vec<Self> {
        (0..)
            .zip(objects)
            .map(|(position, object)| Self {
                position,
                sample: object.sample.clone(),
            })
            .collect()
    }
}

/// Deserialization format of a sample. With serde's `flatten`, unknown fields would be accepted.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FlatSample {
    position: u32,
    #[serde(deserialize_with = "bounded::key")]
    key: String,
    #[serde(default, deserialize_with = "bounded::etag")]
    etag: Option<String>,
}

impl From<FlatSample> for RequestedSample {
    fn from(FlatSample { position, key, etag }: FlatSample) -> Self {
        Self {
            position,
            sample: SampleRef { key, etag },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_tensor::{ObjectInfo, ObjectPage, Precision};

    #[test]
    fn a_key_and_its_version_stand_flat_beside_what_else_is_said() {
        let text = r#"[{"position":7,"key":"a.jpg","etag":"\"1\""},{"position":8,"key":"b.jpg"}]"#;
        let samples: Vec<RequestedSample> = serde_json::from_str(text).unwrap();
        assert_eq!(samples[0].sample.etag.as_deref(), Some("\"1\""));
        assert_eq!(samples[1].sample, SampleRef::new("b.jpg"));
        assert_eq!(serde_json::to_string(&samples).unwrap(), text);
        let text = r#"{"objects":[{"key":"a","etag":"x","size":1,"label":"cat"},{"key":"b","size":2}],"next":"b","left_out":{"count":0,"names":[],"links":{"count":0,"first":""}}}"#;
        let page: ObjectPage = serde_json::from_str(text).unwrap();
        assert_eq!(page.objects[0].sample.etag.as_deref(), Some("x"));
        assert_eq!(
            page.objects[1],
            ObjectInfo {
                sample: SampleRef::new("b"),
                size: 2,
                label: None,
                changed: None,
            }
        );
        assert_eq!(serde_json::to_string(&page).unwrap(), text);
    }

    #[test]
    fn terms_stand_flat_in_a_request_and_unknown_fields_are_still_refused() {
        let text = r#"{"root":"data","split":"none","parameters":"","encoding":"f32","priority":-2,"fixed_batch":8,"samples":[]}"#;
        let request: ExtractionRequest = serde_json::from_str(text).unwrap();
        assert_eq!(request.terms.fixed_batch, Some(8));
        assert_eq!(serde_json::to_string(&request).unwrap(), text);
        for (written, precision) in [
            ("full", Precision::Full),
            ("tf32", Precision::Tf32),
            ("f16", Precision::F16),
        ] {
            let named = text.replace("\"samples\"", &format!("\"precision\":\"{written}\",\"samples\""));
            let request: ExtractionRequest = serde_json::from_str(&named).unwrap();
            assert_eq!(request.terms.precision, precision);
            assert_eq!(precision.to_string(), written);
        }
        let unknown = text.replace("fixed_batch", "fixed_bach");
        let error = serde_json::from_str::<ExtractionRequest>(&unknown)
            .unwrap_err()
            .to_string();
        assert!(error.contains("unknown field `fixed_bach`"), "{error}");
    }

    #[test]
    fn unknown_sample_fields_are_refused() {
        let text = r#"{"position":7,"key":"a.jpg","size":1}"#;
        let error = serde_json::from_str::<RequestedSample>(text)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("unknown field `size`, expected one of `position`, `key`, `etag`"),
            "{error}"
        );
    }
}
