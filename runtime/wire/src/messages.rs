use crate::{Encoding, Split};
use frostline_tensor::{ObjectInfo, SampleRef, Terms, View};
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
    /// How its runs stand to other work.
    #[serde(flatten)]
    pub terms: Terms,
    /// How pixels are augmented; as they are without it. Where objects travel, whoever decodes them does it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<View>,
    /// The samples; each position is answered exactly once, in any order.
    pub samples: Vec<RequestedSample>,
}

/// One sample of an extraction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "FlatSample")]
pub struct RequestedSample {
    /// The client's number for it, unique in the request.
    pub position: u32,
    /// The object, and the version that is meant.
    #[serde(flatten)]
    pub sample: SampleRef,
}

impl RequestedSample {
    /// `objects` by the positions 0, 1, ...
    pub fn in_order(objects: &[ObjectInfo]) -> Vec<Self> {
        let sample = |(position, object): (u32, &ObjectInfo)| Self {
            position,
            sample: object.sample.clone(),
        };
        (0..).zip(objects).map(sample).collect()
    }
}

/// A sample as it is read: through serde's `flatten` unknown fields would not be refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlatSample {
    position: u32,
    key: String,
    #[serde(default)]
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
    use frostline_tensor::{ObjectInfo, ObjectPage};

    #[test]
    fn a_key_and_its_version_stand_flat_beside_what_else_is_said() {
        let text = r#"[{"position":7,"key":"a.jpg","etag":"\"1\""},{"position":8,"key":"b.jpg"}]"#;
        let samples: Vec<RequestedSample> = serde_json::from_str(text).unwrap();
        assert_eq!(samples[0].sample.etag.as_deref(), Some("\"1\""));
        assert_eq!(samples[1].sample, SampleRef::new("b.jpg"));
        assert_eq!(serde_json::to_string(&samples).unwrap(), text);
        let text =
            r#"{"objects":[{"key":"a","etag":"x","size":1,"label":"cat"},{"key":"b","size":2}],"next":"b"}"#;
        let page: ObjectPage = serde_json::from_str(text).unwrap();
        assert_eq!(page.objects[0].sample.etag.as_deref(), Some("x"));
        assert_eq!(
            page.objects[1],
            ObjectInfo {
                sample: SampleRef::new("b"),
                size: 2,
                label: None
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
        let unknown = text.replace("fixed_batch", "fixed_bach");
        let error = serde_json::from_str::<ExtractionRequest>(&unknown)
            .unwrap_err()
            .to_string();
        assert!(error.contains("unknown field `fixed_bach`"), "{error}");
    }

    #[test]
    fn what_a_sample_has_not_is_refused() {
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
